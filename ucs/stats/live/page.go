package live

// Version of Page. A reader takes pages of its own version only.
const Version = 1

// Page is what a context says about itself and its program. The keys are
// stable.
type Page struct {
	Version int `json:"version"`
	// PID is that of the program, in its own namespace.
	PID int `json:"pid"`
	// Command is the program's arguments, its name first.
	Command []string `json:"command"`
	Host    string   `json:"host"`
	// OpenSeconds is how long the context has been open.
	OpenSeconds float64 `json:"open_s"`
	// GoVersion and MaxProcs are those of the program's runtime.
	GoVersion string `json:"go"`
	MaxProcs  int    `json:"gomaxprocs"`
	// Goroutines is their number at this moment.
	Goroutines int `json:"goroutines"`
	// Settings are those that are not default.
	Settings []Setting `json:"settings"`
	Workers  []Worker  `json:"workers"`
}

// Setting is one with its origin.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// Worker is one of the context. Counters are of this moment; all else is a
// Summary that the worker published when it last progressed.
type Worker struct {
	Name string `json:"name"`
	// Mode is the thread mode: multi, serialized or single.
	Mode string `json:"mode"`
	// Fresh: the worker's owner answered this question, so it progresses or
	// sleeps. Else it is busy with something else, or hangs.
	Fresh bool `json:"fresh"`
	// Armed: the worker last asked to be woken by its event descriptor, and sleeps
	// or leaves the waiting to the program.
	Armed bool `json:"armed"`
	// AgeSeconds is the time since the summary was made. A worker that answers
	// makes a new one, and others look into a worker of mode multi themselves.
	AgeSeconds float64 `json:"age_s"`
	Summary    Summary `json:"summary"`
	// Counters by name, "set.name".
	Counters map[string]uint64 `json:"counters"`
}

// Summary is the state of a worker at one moment. Lists are cut at MaxRows; the
// counts beside them are not.
type Summary struct {
	// Endpoints in all, those connected, those failed.
	Endpoints int `json:"endpoints"`
	Connected int `json:"connected"`
	Failed    int `json:"failed"`
	// Peers are the endpoints that were used, failed ones first.
	Peers []Endpoint `json:"peers"`
	// Requests that have not ended, the oldest first.
	Requests []Requests `json:"requests"`
	// Unread is the number of requests that ended and whose result nobody has
	// read.
	Unread int `json:"unread"`
	// Unexpected messages that no receive has taken, announced ones among them,
	// and the bytes held of them and of active messages that were kept, of which
	// UnexpectedBudget is the limit.
	Unexpected       int    `json:"unexpected"`
	UnexpectedBytes  uint64 `json:"unexpected_bytes"`
	UnexpectedBudget uint64 `json:"unexpected_budget"`
	// LentBytes are those of memory lent for all of that and for copies of sends.
	LentBytes int `json:"lent_bytes"`
}

// MaxRows bounds each list of a Summary.
const MaxRows = 256

// Endpoint is one that was used.
type Endpoint struct {
	// Peer names the remote worker.
	Peer string `json:"peer"`
	// State is connected or failed.
	State string `json:"state"`
	// Error is why it failed.
	Error string `json:"error,omitempty"`
	Lanes []Lane `json:"lanes"`
}

// Lane is a connection of an endpoint.
type Lane struct {
	// Name is transport/device.
	Name string `json:"name"`
	// Waiting is the number of operations that wait for room.
	Waiting int `json:"waiting"`
	// Throttled: the peer's budget for unexpected messages is spent, so everything
	// is announced to it.
	Throttled bool `json:"throttled,omitempty"`
	// Error is why it failed.
	Error string `json:"error,omitempty"`
}

// Requests are those of one kind that are in the same situation.
type Requests struct {
	// Op is the operation's name, as in errors.
	Op string `json:"op"`
	// Peer is the remote worker; empty for a receive, which takes from any.
	Peer string `json:"peer,omitempty"`
	// Lane is transport/device, empty where none carries it.
	Lane string `json:"lane,omitempty"`
	// State, for people: "posted" (a receive without a message), "fetching" (its
	// data was asked for), "waiting for room", "announced" (the receiver has not
	// asked for the data), "sending" (it has), "not matched" (a sync send), "held
	// back" (until others are answered), "behind sends" (a flush), "under way".
	State string `json:"state"`
	Count int    `json:"count"`
	// Bytes of all of them.
	Bytes uint64 `json:"bytes"`
	// OldestSeconds is how long the oldest has been seen pending, at the time of
	// the summary. It is seen at summaries, so it may be older by an interval.
	OldestSeconds float64 `json:"oldest_s"`
	// Tag of the oldest, for tag messages; tag/mask where the mask leaves bits
	// open.
	Tag string `json:"tag,omitempty"`
}
