package soft

import (
	"context"

	"github.com/goucx/goucx/ucs"
)

// bell notifies waiters that a queue of events is not empty. A goroutine can wait on a
// channel, without a system call. An event loop can poll a file descriptor instead, which
// the first call of descriptor creates.
//
// Concurrency: any number of goroutines call wait. All other methods need the lock of
// the queue.
type bell struct {
	wake chan struct{} // capacity 1
	done chan struct{} // closed by close
	flag flag          // readable while the queue is not empty
}

func (b *bell) init() {
	b.wake = make(chan struct{}, 1)
	b.done = make(chan struct{})
}

// ring reports that the queue is no longer empty.
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

// more reports, after an event was removed, whether others are left. If so, it wakes
// another waiter: the channel holds one signal only.
func (b *bell) more(left bool) {
	if left {
		b.nudge()
	} else {
		b.flag.lower()
	}
}

// wait returns nil when an event may be pending.
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

// descriptor returns the descriptor, which is readable while the queue is not empty.
// left is whether it is not empty now. It returns -1 if the system provides none or the
// bell is closed.
func (b *bell) descriptor(left bool) int {
	select {
	case <-b.done:
		return -1
	default:
	}
	return b.flag.open(left)
}

// close makes all current and later calls of wait return ucs.ErrClosed.
func (b *bell) close() error {
	close(b.done)
	return b.flag.close()
}
