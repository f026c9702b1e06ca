// Package ucttest is the conformance suite of package uct: what every transport
// must pass.
//
// A transport's test is one call:
//
//	func TestConformance(t *testing.T) { ucttest.Run(t, ucttest.Factory{Component: shm.Component()}) }
//	func TestGateAllocs(t *testing.T)  { ucttest.Gates(t, ucttest.Factory{Component: shm.Component()}) }
//
// Run opens domains and ifaces of the component and lets them talk: two ifaces
// of two domains where one reaches the other, else an iface with itself; a
// second process, which is the test binary run again, for the cases of theme
// process. A case that does not apply says so from capabilities, reachability
// and what it observes, never from a transport's name. matrix.txt lists the
// outcome of every case for every transport; any difference fails.
//
// # How the suite reads the contract
//
// Where package uct leaves room, these readings hold:
//
//   - Progress answers exactly the messages and events that it handed over;
//     retried tokens and failures do not count.
//   - While tokens wait, NoResource is the answer of every message, put, get and
//     atomic outside HandlePending. Flush and Fence may be accepted: tokens that
//     wait are not covered by them, and a flush must not wait for them.
//   - PendingAdd is OK where nothing moved since the refused send, and Busy where
//     room for it is there and no token waits.
//   - A handler may purge and close in HandlePending; its result then counts
//     nothing.
//   - An open reservation stops neither Progress nor other endpoints.
//   - More pieces or a longer head than Attr allows: TooLong or InvalidParam. A
//     longer payload, or sum of pieces: TooLong.
//   - Zero-length put and get succeed at any place of a region, its end included.
//   - A revoked or closed region answers RemoteAccess or InvalidParam, also where
//     another region took its place.
//   - After Endpoint.Close or Iface.Close each operation answers Closed; after
//     the peer's end PeerFailed, one-sided ones too; after FlushCancel Canceled or
//     PeerFailed, with at most one HandleFailure.
//   - Failure.Err is nil where the peer closed its endpoint or iface in order,
//     and wraps ucs.ErrPeerFailed where it crashed. With Attr.PeerFailure the end
//     of a connection is reported to its receiver too, after its last message.
//   - A damaged address is unreachable, refused by NewEndpoint, or fails its
//     endpoint; no message ever arrives by it.
//   - Desc.Source names a connection for its life, also where the transport goes
//     on by another path. Endpoints that both sides open at once, and those not
//     used for a while, serve as any other; NoResource is a fair answer meanwhile.
//   - A transport may make a connection at first use: until the peer has answered,
//     operations answer NoResource. Where cases fill a connection or count on a
//     first answer, Endpoint.Check brings it up.
//   - With IfaceAttr.AccessFails an access to a region that was taken back fails its
//     endpoint, with ucs.ErrRemoteAccess; with DomainAttr.KeysUnasked its key is
//     unpacked nevertheless.
//   - Close of domains is idempotent, as that of everything else.
//
// Not tested, because package uct does not say: message ids of NumAMIDs and
// above, a commit beyond the reservation, Progress with a budget below 1, and
// NewEndpoint from within a callback.
//
// Start reading at factory.go and node.go.
package ucttest
