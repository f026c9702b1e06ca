package perf

import (
	"context"
	"sync"
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

// link is the context of the waits of a kernel: it ends when the other side has
// failed or gone, or by fail, with which an endpoint ends it that has failed. It
// looks at the other side itself when it is asked, so that no goroutine beside the
// measured one exists. Whoever waits asks every 64th pass, so a failure is seen
// within a millisecond. One goroutine uses it.
//
// A watched link never looks there: a watcher ends it by fail.
type link struct {
	g       Group
	asked   uint
	watched bool
	err     error
	done    chan struct{}

	mu    sync.Mutex // guards the rest
	found error      // why done is closed
	after map[*func()]struct{}
}

func newLink(g Group) *link { return &link{g: g, done: make(chan struct{})} }

// Deadline says that there is none.
func (l *link) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed once a failure is found; nobody looks while nobody asks, unless
// the link is watched.
func (l *link) Done() <-chan struct{} { return l.done }

// Value holds nothing.
func (l *link) Value(any) any { return nil }

// Err looks for a failure at every linkPeriod-th call.
func (l *link) Err() error {
	l.asked++
	if l.asked%linkPeriod != 0 && !l.watched || l.err != nil {
		return l.err
	}
	return l.look()
}

//go:noinline
func (l *link) look() error {
	if !l.watched && l.err == nil {
		if err := l.g.Err(); err != nil {
			l.fail(err)
		}
	}
	select {
	case <-l.done:
		l.err = l.found
	default:
	}
	return l.err
}

// fail ends the link, once. Any goroutine may call it.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.found != nil {
		return
	}
	l.found = err
	close(l.done)
	for f := range l.after {
		go (*f)()
	}
	l.after = nil
}

// AfterFunc is what package context looks for, so that a sleeper's wake-up costs
// no goroutine.
func (l *link) AfterFunc(f func()) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.found != nil {
		go f()
		return func() bool { return false }
	}
	if l.after == nil {
		l.after = make(map[*func()]struct{})
	}
	l.after[&f] = struct{}{}
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, there := l.after[&f]
		delete(l.after, &f)
		return there
	}
}

var _ context.Context = (*link)(nil)
