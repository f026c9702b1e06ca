package uct

import "time"

// PeerChecker is an Iface that detects soon that a peer's process has ended, while something waits
// for that peer: an operation in flight, or what WaitReporter reports. Without it the end of a peer
// is detected within IfaceAttr.FailureWithin.
type PeerChecker interface {
	// CheckPeers checks these peers if that is due, as Progress does. The user calls it before it
	// arms the iface to sleep, and progresses the iface within the time that it returns. 0: nothing
	// waits for a peer.
	CheckPeers() time.Duration
}
