// Package rc is the transport over reliable connected queue pairs of package
// verbs.
//
// An iface has one shared receive queue, one completion queue of each direction
// and one unreliable datagram queue pair, by which connections are made. A
// connection gets its queue pair at first use: package wireup/machine decides,
// its messages travel as datagrams. Until the peer has answered, operations
// answer NoResource.
//
// What its owner must know: memory that takes part in a zcopy is registered
// (DomainAttr.NeedMem). A get that ends at once there is none. An access that the
// peer refuses ends the connection (IfaceAttr.AccessFails).
//
// docs/rc.md draws the objects and the way of a message. Start reading at iface.go
// and queue.go.
package rc
