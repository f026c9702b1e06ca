package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/goucx/goucx/ucs"
)

// Fate is what became of a datagram.
type Fate uint8

// Fates.
const (
	Sent      Fate = iota
	Delivered      // handed to its node
	Lost           // by the link's chance
	Corrupted      // on its way with bits flipped
	Cut            // in a partition
	TooLong        // longer than the link's MTU
	QueueFull      // no room before the wire
	NoNode         // nobody at the address
	note           // a line of the program
	numFates
)

var fateNames = [numFates]string{"sent", "delivered", "lost", "corrupted", "cut", "too long", "queue full", "no node", "note"}

// String names the fate.
func (f Fate) String() string {
	if f < numFates {
		return fateNames[f]
	}
	return "fate?"
}

// Counts are the datagrams of a network so far.
type Counts struct {
	Sent, Delivered                       int
	Lost, Cut, TooLong, QueueFull, NoNode int
	// Delayed took longer than the link's latency: reordered, or stalled.
	Duplicated, Corrupted, Delayed int
}

// Counts tells what happened so far.
func (n *Net) Counts() Counts { return n.counts }

func (c *Counts) count(why Fate) {
	switch why {
	case Lost:
		c.Lost++
	case Cut:
		c.Cut++
	case TooLong:
		c.TooLong++
	case QueueFull:
		c.QueueFull++
	case NoNode:
		c.NoNode++
	default: // no loss
	}
}

// prefixLen is how much of a datagram the trace keeps.
const prefixLen = 48

// trace is a ring of the last records.
type trace struct {
	ring     []record
	next     int // total number of records so far
	describe func(b []byte) string
}

type record struct {
	when   ucs.Time
	fate   Fate
	pair   pair
	len    int
	prefix [prefixLen]byte
	note   string
}

// KeepTrace has the network remember its last events for Trace. describe says
// what a datagram is, from its first 48 bytes; nil: they are printed in hex.
func (n *Net) KeepTrace(events int, describe func(b []byte) string) {
	n.trace = trace{ring: make([]record, events), describe: describe}
}

// Note puts a line of the program into the trace.
func (n *Net) Note(format string, args ...any) {
	if r := n.trace.slot(); r != nil {
		*r = record{when: n.now, fate: note, note: fmt.Sprintf(format, args...)}
	}
}

func (t *trace) slot() *record {
	if len(t.ring) == 0 {
		return nil
	}
	r := &t.ring[t.next%len(t.ring)]
	t.next++
	return r
}

func (t *trace) add(now ucs.Time, f Fate, p pair, b []byte) {
	if r := t.slot(); r != nil {
		r.when, r.fate, r.pair, r.len, r.note = now, f, p, len(b), ""
		copy(r.prefix[:], b)
	}
}

// Trace gives the last events, one a line, oldest first: the time since Start,
// what happened, from where to where, the length and what it was.
func (n *Net) Trace() string {
	t := &n.trace
	var out strings.Builder
	for i := max(0, t.next-len(t.ring)); i < t.next; i++ {
		t.print(&out, &t.ring[i%len(t.ring)])
	}
	return out.String()
}

func (t *trace) print(out *strings.Builder, r *record) {
	at := float64(r.when.Sub(Start)) / float64(time.Microsecond)
	if r.fate == note {
		fmt.Fprintf(out, "%12.3f %s\n", at, r.note)
		return
	}
	head := r.prefix[:min(r.len, prefixLen)]
	what := fmt.Sprintf("%.16x", head)
	if t.describe != nil {
		what = t.describe(head)
	}
	fmt.Fprintf(out, "%12.3f %-10s %s -> %s %5d B  %s\n", at, r.fate, r.pair.from, r.pair.to, r.len, what)
}
