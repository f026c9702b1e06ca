package live

// Version is the version of Page. A reader accepts only pages of its own version.
const Version = 1

// Page is the state of a context and its program. The keys are stable.
type Page struct {
	Version int `json:"version"`
	// PID is the program's process ID, in its own namespace.
	PID int `json:"pid"`
	// Command holds the program's name and arguments.
	Command []string `json:"command"`
	Host    string   `json:"host"`
	// OpenSeconds is the time since the context was opened.
	OpenSeconds float64 `json:"open_s"`
	// GoVersion and MaxProcs are those of the program's runtime.
	GoVersion string `json:"go"`
	MaxProcs  int    `json:"gomaxprocs"`
	// Goroutines is their current number.
	Goroutines int `json:"goroutines"`
	// Settings are those that differ from their default.
	Settings []Setting `json:"settings"`
	Workers  []Worker  `json:"workers"`
}

// Setting is a setting and its origin.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// Worker is a worker of the context. Its counters are current. Everything else is from a
// Summary, which the worker published when it last progressed.
type Worker struct {
	Name string `json:"name"`
	// Mode is the thread mode: multi, serialized or single; of a Thread "thread of" and its worker.
	Mode string `json:"mode"`
	// Responsive means that the worker responded to this request, so it progresses or sleeps.
	// Otherwise it is busy or hangs.
	Responsive bool `json:"fresh"`
	// Armed means that the worker last requested a wake-up through its event descriptor. It
	// sleeps, or the program waits for the descriptor.
	Armed bool `json:"armed"`
	// AgeSeconds is the age of the summary. A worker that progresses makes a new one for each
	// request. For a worker of mode multi, another goroutine can make it.
	AgeSeconds float64 `json:"age_s"`
	Summary    Summary `json:"summary"`
	// Counters are indexed by name, "set.name".
	Counters map[string]uint64 `json:"counters"`
}

// Summary is the state of a worker at one time. A list has at most MaxRows entries; the
// counts beside it include all.
type Summary struct {
	// Endpoints, Connected and Failed count all endpoints, connected ones and failed ones.
	Endpoints int `json:"endpoints"`
	Connected int `json:"connected"`
	Failed    int `json:"failed"`
	// Peers are the endpoints that were used, failed ones first.
	Peers []Endpoint `json:"peers"`
	// Requests are those that have not completed, oldest first.
	Requests []Requests `json:"requests"`
	// Unread is the number of completed requests whose result was not read.
	Unread int `json:"unread"`
	// Unexpected is the number of messages without a receive, including rendezvous requests.
	// UnexpectedBytes is the size of their data and of retained active messages.
	// UnexpectedBudget is its limit.
	Unexpected       int    `json:"unexpected"`
	UnexpectedBytes  uint64 `json:"unexpected_bytes"`
	UnexpectedBudget uint64 `json:"unexpected_budget"`
	// AllocatedBytes is the size of the memory allocated for those and for copies of sends.
	AllocatedBytes int `json:"lent_bytes"`
}

// MaxRows bounds each list of a Summary.
const MaxRows = 256

// Endpoint is an endpoint that was used.
type Endpoint struct {
	// Peer is the name of the remote worker.
	Peer string `json:"peer"`
	// State is connected or failed.
	State string `json:"state"`
	// Error is the reason of the failure.
	Error string `json:"error,omitempty"`
	Lanes []Lane `json:"lanes"`
}

// Lane is a connection of an endpoint.
type Lane struct {
	// Name is transport/device.
	Name string `json:"name"`
	// Pending is the number of operations that wait for resources.
	Pending int `json:"waiting"`
	// RndvOnly means that the peer's budget for unexpected messages is used up. All messages
	// to it use rendezvous.
	RndvOnly bool `json:"throttled,omitempty"`
	// Error is the reason of the failure.
	Error string `json:"error,omitempty"`
}

// Requests are the requests of one kind in the same state.
type Requests struct {
	// Op is the name of the operation, as in errors.
	Op string `json:"op"`
	// Peer is the remote worker; empty for a receive, which matches messages of any peer.
	Peer string `json:"peer,omitempty"`
	// Lane is transport/device; empty if no lane is used.
	Lane string `json:"lane,omitempty"`
	// State describes the state:
	//   - "posted": a receive without a message
	//   - "fetching": a receive that has requested its data
	//   - "waiting for room": waiting for resources
	//   - "announced": the receiver has not requested the data
	//   - "sending": the receiver has requested the data
	//   - "not matched": a synchronous send without a receive
	//   - "held back": waiting until the peer acknowledges earlier messages
	//   - "behind sends": a flush
	//   - "under way": anything else
	State string `json:"state"`
	Count int    `json:"count"`
	// Bytes is the total size of all of them.
	Bytes uint64 `json:"bytes"`
	// OldestSeconds is the time since a summary first included the oldest of them, at the time
	// of this summary. The request may be older by one interval between summaries.
	OldestSeconds float64 `json:"oldest_s"`
	// Tag is the tag of the oldest tag message. It is tag/mask if the mask has zero bits.
	Tag string `json:"tag,omitempty"`
}
