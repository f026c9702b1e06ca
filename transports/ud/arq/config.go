package arq

import "time"

// MaxWindow is the largest number of unacknowledged packets of a flow.
const MaxWindow = 255

// Config is the configuration of all flows of a Mux. Every field must be set; Default has
// suitable values.
type Config struct {
	// Window bounds the unacknowledged packets of a flow, 1 to MaxWindow.
	Window uint32
	// Initial is the window before the first acknowledgement. It also bounds the packets
	// that are accepted while the flow opens. It is at most Window.
	Initial uint32
	// AckEvery is the number of packets received in order after which an ACK is urgent.
	// Fewer are acknowledged by a piggybacked ACK, or when the user flushes ACKs.
	AckEvery uint32
	// MinRTO and MaxRTO bound the retransmission time-out. FirstRTO is its value before a
	// round trip was measured.
	MinRTO, FirstRTO, MaxRTO time.Duration
	// KeepAlive is the interval of liveness probes of an idle flow.
	KeepAlive time.Duration
	// PeerTimeout is the time without any reply from the peer after which a flow fails.
	PeerTimeout time.Duration
}

// Default suits programs that compute for milliseconds without progress, and networks
// that are interrupted for seconds.
var Default = Config{
	Window: MaxWindow, Initial: 32,
	AckEvery: 16,
	MinRTO:   4 * time.Millisecond, FirstRTO: 20 * time.Millisecond, MaxRTO: time.Second,
	KeepAlive: 10 * time.Second, PeerTimeout: 30 * time.Second,
}

const (
	// minWindow is the smallest window after losses.
	minWindow = 8
	// minReordering is the initial distance in transmissions: a packet counts as lost once
	// one that was transmitted so much later has arrived. The distance grows up to
	// maxReordering when packets were only reordered.
	minReordering, maxReordering = 3, 48
	// minProbes is the number of unanswered probes without which a flow does not fail,
	// however short Config.PeerTimeout is.
	minProbes = 4
	// pauseThreshold is the delay of a tick from which on this process counts as stopped. The time
	// of the delay is not counted against the peer. A busy machine delays less.
	pauseThreshold = time.Second
)
