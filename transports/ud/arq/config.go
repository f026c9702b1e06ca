package arq

import "time"

// MaxWindow is the most packets of a flow that are unacknowledged.
const MaxWindow = 255

// Config holds what flows do alike. Every field must be set; Default has figures
// that serve.
type Config struct {
	// Window bounds the packets of a flow that are unacknowledged, 1 to MaxWindow.
	Window uint32
	// Initial is how many go before the first acknowledgement, and before the flow is
	// open; at most Window.
	Initial uint32
	// AckEvery packets in order are acknowledged at once, fewer with what goes back
	// anyway or after AckDelay.
	AckEvery uint32
	// AckDelay is how long an acknowledgement waits for something to ride with.
	AckDelay time.Duration
	// MinRTO and MaxRTO bound the time after which what is not acknowledged goes
	// again, FirstRTO is that before a round trip was measured.
	MinRTO, FirstRTO, MaxRTO time.Duration
	// KeepAlive is how often an idle flow asks whether its peer is there.
	KeepAlive time.Duration
	// Silence is how long a peer may leave everything unanswered.
	Silence time.Duration
}

// Default is for hosts that compute for milliseconds, and networks that are cut
// for seconds.
var Default = Config{
	Window: MaxWindow, Initial: 32,
	AckEvery: 16, AckDelay: 50 * time.Microsecond,
	MinRTO: 4 * time.Millisecond, FirstRTO: 20 * time.Millisecond, MaxRTO: time.Second,
	KeepAlive: 10 * time.Second, Silence: 30 * time.Second,
}

const (
	// minWindow is what losses leave of a window.
	minWindow = 8
	// minReordering is how many packets may overtake one before it counts as lost;
	// where that was wrong, more, up to maxReordering.
	minReordering, maxReordering = 3, 48
	// minProbes is how many questions must be without an answer before silence
	// fails a flow, however short Config.Silence is.
	minProbes = 4
	// stopped is by how much a tick is late when the process was stopped. The peer was
	// not silent meanwhile, so this time does not count. A busy machine delays less.
	stopped = time.Second
)
