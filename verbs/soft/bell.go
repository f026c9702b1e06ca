package soft

import (
	"context"

	"github.com/goucx/goucx/ucs"
)

// bell tells those who wait for a queue of events that it is not empty: a
// goroutine without a system call, and whoever polls the descriptor, which is
// made when it is first asked for.
//
// Concurrency: wait by any number of goroutines; the rest under the queue's lock.
type bell struct {
	wake chan struct{} // holds one
	done chan struct{} // closed by close
	flag flag          // up while the queue is not empty
}

func (b *bell) init() {
	b.wake = make(chan struct{}, 1)
	b.done = make(chan struct{})
}

// ring says that an event came.
func (b *bell) ring() {
	b.flag.raise()
	b.nudge()
}

func (b *bell) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// more says whether events are left after one was taken. Whoever waits beside the
// one that took it is woken for the rest.
func (b *bell) more(left bool) {
	if left {
		b.nudge()
	} else {
		b.flag.lower()
	}
}

// wait returns when an event may have come.
func (b *bell) wait(ctx context.Context) error {
	select {
	case <-b.wake:
		return nil
	case <-b.done:
		return ucs.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// descriptor gives the descriptor, which is readable while the queue is not
// empty; -1: the system gave none.
func (b *bell) descriptor(left bool) int {
	select {
	case <-b.done:
		return -1
	default:
	}
	return b.flag.open(left)
}

// close wakes all who wait, for good.
func (b *bell) close() error {
	close(b.done)
	return b.flag.close()
}
