package perf

import (
	"context"
	"sync"
	"time"
)

// Group is the set of processes of a benchmark, as package rte creates it: two connected
// processes, or one that measures itself.
type Group interface {
	// Index returns 0 for the measuring side.
	Index() int
	// Size returns 1 or 2.
	Size() int
	// Exchange swaps a blob with the other side. A single process receives own.
	Exchange(own []byte) ([]byte, error)
	// Barrier returns when all sides have entered it. It calls progress meanwhile; with nil it
	// blocks.
	Barrier(progress func()) error
	// Err reports, without blocking, whether the other side has failed.
	Err() error
}

// linkPeriod is the number of calls of Err for each check of the other side.
const linkPeriod = 256

// link is the context of a kernel's waits. It ends when the other side has failed or exited, or
// when an endpoint that failed calls fail. Err itself checks the other side, so that no goroutine
// exists beside the measured one. A wait calls Err in every 64th pass, so a failure is detected
// within a millisecond. A link is used by one goroutine.
//
// A watched link does not check; a watcher ends it by calling fail.
type link struct {
	g       Group
	calls   uint
	watched bool
	err     error
	done    chan struct{}
	// interrupt is Config.Interrupt.
	interrupt <-chan struct{}

	mu    sync.Mutex // guards the following fields
	found error      // the reason why done is closed
	after map[*func()]struct{}
}

func newLink(c *Config, g Group) *link {
	return &link{g: g, done: make(chan struct{}), interrupt: c.Interrupt}
}

// Deadline implements context.Context; there is no deadline.
func (l *link) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done returns a channel that is closed when a failure is found. Unless the link is watched, only
// Err finds failures.
func (l *link) Done() <-chan struct{} { return l.done }

// Value implements context.Context; there are no values.
func (l *link) Value(any) any { return nil }

// Err checks for a failure at every linkPeriod-th call.
func (l *link) Err() error {
	l.calls++
	if l.calls%linkPeriod != 0 && !l.watched || l.err != nil {
		return l.err
	}
	return l.check()
}

//go:noinline
func (l *link) check() error {
	if !l.watched && l.err == nil {
		if err := l.g.Err(); err != nil {
			l.fail(err)
		}
	}
	select {
	case <-l.interrupt:
		l.fail(ErrInterrupted)
	default:
	}
	select {
	case <-l.done:
		l.err = l.found
	default:
	}
	return l.err
}

// fail ends the link, once. It may be called from any goroutine.
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

// AfterFunc is called by package context, so that waking a blocked wait needs no goroutine.
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
		_, registered := l.after[&f]
		delete(l.after, &f)
		return registered
	}
}

var _ context.Context = (*link)(nil)
