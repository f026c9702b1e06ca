package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/goucx/goucx/ucs"
)

// Fate is what happened to a datagram.
type Fate uint8

// Fates.
const (
	Sent        Fate = iota
	Delivered        // passed to its node
	Lost             // by the link's loss probability
	Corrupted        // arrived with flipped bits
	Partitioned      // lost in a partition
	TooLong          // longer than the link's MTU
	QueueFull        // the link's queue was full
	NoNode           // no node at the address
	note             // a line of the test's program
	numFates
)

var fateNames = [numFates]string{"sent", "delivered", "lost", "corrupted", "cut", "too long", "queue full", "no node", "note"}

// String returns the name of the fate.
func (f Fate) String() string {
	if f < numFates {
		return fateNames[f]
	}
	return "fate?"
}

// Counts counts the datagrams of a network so far.
type Counts struct {
	Sent, Delivered                               int
	Lost, Partitioned, TooLong, QueueFull, NoNode int
	// Delayed datagrams took longer than the link's latency: reordered, or stalled.
	Duplicated, Corrupted, Delayed int
}

// Counts returns the counts so far.
func (n *Net) Counts() Counts { return n.counts }

func (c *Counts) count(why Fate) {
	switch why {
	case Lost:
		c.Lost++
	case Partitioned:
		c.Partitioned++
	case TooLong:
		c.TooLong++
	case QueueFull:
		c.QueueFull++
	case NoNode:
		c.NoNode++
	default: // not lost
	}
}

// prefixLen is the number of bytes of a datagram that the trace stores.
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

// KeepTrace makes the network record its last events for Trace. describe formats a datagram from
// its first 48 bytes; nil: they are printed in hex.
func (n *Net) KeepTrace(events int, describe func(b []byte) string) {
	n.trace = trace{ring: make([]record, events), describe: describe}
}

// Note adds a line of the test's program to the trace.
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

// Trace returns the last events, one per line, oldest first: the time since Start, the fate, both
// addresses, the length and the description.
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
