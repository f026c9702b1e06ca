// Package ucttest is the conformance suite of package uct, which every transport must pass.
//
// A transport's test is one call:
//
//	func TestConformance(t *testing.T) { ucttest.Run(t, ucttest.Factory{Component: shm.Component()}) }
//	func TestGateAllocs(t *testing.T)  { ucttest.Gates(t, ucttest.Factory{Component: shm.Component()}) }
//
// Run opens domains and ifaces of the component and sends between them: between two ifaces of two
// domains if one reaches the other, else from an iface to itself. The cases of theme process start
// a second process, which is the test binary run again. Whether a case applies depends on
// capabilities, reachability and observation, never on a transport's name. matrix.txt lists the
// outcome of every case for every transport; any difference fails.
//
// # How the suite reads the contract
//
// Where package uct leaves room, these readings hold:
//
//   - Progress returns the number of messages, events and failures that it delivered. It
//     returns more only if it called HandlePending, or copied for a Fetch.
//   - While tokens are pending, every message, put, get and atomic outside HandlePending
//     returns NoResource. Flush and Fence may be accepted: they do not cover pending tokens,
//     and a flush must not wait for them.
//   - PendingAdd returns OK if no resource came back since the refused send. It returns Busy if
//     there is room for the operation and no token is pending.
//   - A handler may purge and close in HandlePending; its result is then ignored.
//   - An open reservation stops neither Progress nor other endpoints.
//   - More pieces or a longer header than Attr allows: TooLong or InvalidParam. A longer
//     payload, or sum of pieces: TooLong.
//   - Zero-length put and get succeed at any offset of a region, including its end.
//   - An access to a revoked or closed region returns RemoteAccess or InvalidParam, even if
//     another region took its place.
//   - After Endpoint.Close or Iface.Close each operation returns Closed. After the peer has
//     closed it returns PeerFailed, also for one-sided operations. After FlushCancel it
//     returns Canceled or PeerFailed, with at most one HandleFailure.
//   - Failure.Err is nil if the peer closed its endpoint or iface in order, and wraps
//     ucs.ErrPeerFailed if it crashed. In the first case Failure.Acked reports whether the peer
//     had acknowledged all operations. With Attr.PeerFailure the end of a connection is also
//     reported to its receiver, after its last message.
//   - A damaged address is unreachable, refused by NewEndpoint, or fails its endpoint; no
//     message arrives through it.
//   - Desc.Source identifies a connection for its lifetime, even if the transport migrates it.
//     Endpoints that both sides open at once, and those unused for a while, work like any
//     other; they may return NoResource meanwhile.
//   - A transport may establish a connection at first use. Until the peer has replied,
//     operations return NoResource. Where a case fills a connection or needs the first
//     operation to succeed, it establishes the connection with Endpoint.Check.
//   - With IfaceAttr.AccessErrorFatal an access to a revoked or closed region fails its endpoint
//     with ucs.ErrRemoteAccess. With DomainAttr.LazyKeyCheck its key can still be unpacked.
//   - Close of a domain is idempotent, as that of everything else.
//
// Package uct does not define, and the suite does not test: message IDs of NumAMIDs and above, a
// commit beyond the reservation, Progress with a budget below 1, and NewEndpoint within a
// callback.
//
// Start reading at factory.go and node.go.
package ucttest
