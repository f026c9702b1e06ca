// Package rc is the transport over reliable connected (RC) queue pairs of package verbs.
//
// An iface has one shared receive queue (SRQ), and one completion queue each for sends and
// receives. An unreliable datagram (UD) queue pair carries its connection messages. A connection
// gets an RC QP when it is first used. Package wireup/machine decides about connections; its
// messages are sent as datagrams. Until the peer has accepted the connection, operations return
// NoResource.
//
// Zero-copy operations need registered memory (DomainAttr.NeedMem). No get completes before the
// call returns. An access that the peer's device rejects ends the connection
// (IfaceAttr.AccessErrorFatal).
//
// docs/rc.md shows the objects and the path of a message. Start reading at iface.go and
// queue.go.
package rc
