package verbs

import (
	"context"

	"github.com/goucx/goucx/ucs"
)

// CQConfig is what a completion queue is made with.
type CQConfig struct {
	// Depth is how many completions it holds at least; required.
	Depth int
	// Channel gets the events of Arm; nil: it cannot be armed.
	Channel CompChannel
	// Cookie names the queue in events.
	Cookie uint64
	// Domain is the parent domain that it is made in; nil: none. Where that has a
	// thread domain the queue is single-threaded.
	Domain PD
	// SingleThreaded: one goroutine at a time uses it; polling takes no lock.
	SingleThreaded bool
	// IgnoreOverrun: completions that find no room are lost silently.
	IgnoreOverrun bool
}

// CQ is a completion queue. Completions of one queue pair come in the order of
// their work requests.
type CQ interface {
	// Poll takes up to len(wcs) completions. Fewer: the queue was empty. -1: it
	// overran and is unusable. It may run the device (soft).
	//
	// hot: BenchmarkPoll.
	Poll(wcs []WC) int
	// Arm asks for one event through the channel on the next completion; with
	// solicitedOnly on the next solicited one or error. Poll again after it: what
	// came before gives no event.
	Arm(solicitedOnly bool) ucs.Status
	// Resize changes the depth, never below what it holds.
	Resize(depth int) error
	// Close refuses with ErrBusy while queue pairs use it.
	Close() error
}

// CompChannel carries the events of completion queues.
type CompChannel interface {
	// FD becomes readable when there is an event, for poll and epoll.
	FD() int
	// TryEvent takes an event without waiting: the Cookie of the CQ.
	TryEvent() (cookie uint64, ok bool)
	// Event waits for one, through the runtime's poller.
	Event(ctx context.Context) (cookie uint64, err error)
	// Close refuses with ErrBusy while completion queues use it.
	Close() error
}
