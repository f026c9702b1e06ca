package verbs

import (
	"context"

	"github.com/goucx/goucx/ucs"
)

// CQConfig configures a completion queue.
type CQConfig struct {
	// Depth is the minimum number of completions that the queue holds; required.
	Depth int
	// Channel receives the events of Arm. If nil, the queue cannot be armed.
	Channel CompChannel
	// Cookie identifies the queue in events.
	Cookie uint64
	// Domain is the parent domain of the queue, or nil. If the domain has a thread
	// domain, the queue is single-threaded.
	Domain PD
	// SingleThreaded: at most one goroutine at a time uses the queue; polling takes no
	// lock.
	SingleThreaded bool
	// IgnoreOverrun: completions that do not fit are dropped without an error.
	IgnoreOverrun bool
}

// CQ is a completion queue. The completions of one queue pair are in the order of their
// work requests.
type CQ interface {
	// Poll stores up to len(wcs) completions in wcs and returns their number. A smaller
	// number means that the queue was empty. -1 means that it is unusable: it overran, or the
	// device has failed.
	// On a soft device Poll also makes progress.
	//
	//hot:bench BenchmarkPushPoll
	Poll(wcs []WC) int
	// Arm requests one event on the channel for the next completion, or with
	// solicitedOnly for the next solicited completion or error. Poll again after Arm:
	// completions that were already in the queue raise no event.
	Arm(solicitedOnly bool) ucs.Status
	// Resize changes the depth. It fails if the queue holds more completions.
	Resize(depth int) error
	// Close returns ErrBusy while queue pairs use the queue.
	Close() error
}

// CompChannel is a completion channel: it carries the events of completion queues.
type CompChannel interface {
	// FD returns a file descriptor that is readable while there is an event, for poll
	// and epoll.
	FD() int
	// TryEvent removes an event without blocking and returns the Cookie of its queue.
	TryEvent() (cookie uint64, ok bool)
	// Event blocks until there is an event, in the runtime's network poller.
	Event(ctx context.Context) (cookie uint64, err error)
	// Close returns ErrBusy while completion queues use the channel.
	Close() error
}
