package perf

import (
	"context"
	"time"
)

// Group is the processes of a benchmark, as package rte makes it: two that are
// connected, or one that measures itself.
type Group interface {
	// Index is 0 for the side that measures.
	Index() int
	// Size is 1 or 2.
	Size() int
	// Exchange swaps a blob with the other side; alone it gives own back.
	Exchange(own []byte) ([]byte, error)
	// Barrier returns when all have entered it, and calls progress meanwhile;
	// with nil it sleeps.
	Barrier(progress func()) error
	// Err looks, without waiting, whether the other side has failed.
	Err() error
}

// linkPeriod is the number of times that a link is asked before it looks.
const linkPeriod = 256

// link is the context of the waits of a run: it ends when the other side has
// failed or gone. It looks for that itself when it is asked, so that no
// goroutine beside the measured one exists. Whoever waits asks every 64th pass,
// so a failure is seen within a millisecond. One goroutine uses it.
type link struct {
	g     Group
	asked uint
	err   error
	done  chan struct{}
}

func newLink(g Group) *link { return &link{g: g, done: make(chan struct{})} }

// Deadline says that there is none.
func (l *link) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed once Err has found a failure; nobody looks while nobody asks.
func (l *link) Done() <-chan struct{} { return l.done }

// Value holds nothing.
func (l *link) Value(any) any { return nil }

// Err looks for a failure at every linkPeriod-th call.
func (l *link) Err() error {
	l.asked++
	if l.asked%linkPeriod != 0 || l.err != nil {
		return l.err
	}
	return l.look()
}

//go:noinline
func (l *link) look() error {
	if l.err == nil {
		if l.err = l.g.Err(); l.err != nil {
			close(l.done)
		}
	}
	return l.err
}

var _ context.Context = (*link)(nil)
