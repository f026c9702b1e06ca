//go:build linux

package chaos

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/goucx/goucx/ucp"
)

// line is a message between controller and member, one JSON object a line.
//
// To a member:
//
//	with     exchange with member ID, by Address and Keys
//	dead     member ID was killed
//	left     member ID closes; it has sent Sent to this member
//	rest     post nothing more; answer rested once all requests have ended
//	expect   member ID has sent Sent to this member; answer complete
//	finish   check that nothing is left over, close, exit
//	dump     print the state
//
// From a member:
//
//	ready    Address and Keys
//	stat     Stat, every second
//	failed   an operation with member ID failed for Text (ID 0: an unknown one)
//	gap      messages of member ID are missing
//	parted   the endpoints to member ID have failed and are closed
//	rested   what was sent to each member
//	complete all that member ID has sent has arrived
//	anomaly  Text
//	state    Text: links, requests, goroutines
//	closed   all is closed
type line struct {
	Kind    string
	ID      uint32          `json:",omitempty"`
	Address ucp.Address     `json:",omitempty"`
	Keys    []ucp.Key       `json:",omitempty"`
	Sent    sent            `json:",omitzero"`
	All     map[uint32]sent `json:",omitempty"`
	Total   uint64          `json:",omitempty"`
	Exposed int             `json:",omitempty"`
	Text    string          `json:",omitempty"`
	Stat    stat            `json:",omitzero"`
}

// numClasses is the number of tag classes, see message_test.go.
const numClasses = 4

// sent counts what a member posted to another.
type sent struct {
	Tags   [numClasses]uint32
	AMs    uint32
	Shared uint64 // added to the target's shared word
}

// stat is what a member uses.
type stat struct {
	Passes, Ops, Bytes uint64
	RSS                uint64 // resident bytes
	Heap               uint64 // live bytes after the last garbage collection
	Pool               uint64 // bytes of the member's own buffers, all of them
	FDs, Goroutines    int
	Clock              time.Duration // of the member
	Slowest            float64       // seconds that an operation has taken at most
	Slow               string        // which
}

// lineWriter writes lines from several goroutines.
type lineWriter struct {
	mu sync.Mutex
	e  *json.Encoder
}

func newLineWriter(w io.Writer) *lineWriter { return &lineWriter{e: json.NewEncoder(w)} }

func (w *lineWriter) write(l line) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.e.Encode(l)
}

// readLines hands over each line until r ends.
func readLines(r io.Reader, f func(line)) {
	for d := json.NewDecoder(r); ; {
		var l line
		if d.Decode(&l) != nil {
			return
		}
		f(l)
	}
}
