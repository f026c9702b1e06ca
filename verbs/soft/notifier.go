package soft

import (
	"context"

	"github.com/goucx/goucx/ucs"
)

// notifier notifies waiters that a queue of events is not empty. A goroutine can wait on a
// channel, without a system call. An event loop can poll a file descriptor instead, which
// the first call of descriptor creates.
//
// Concurrency: any number of goroutines call wait. All other methods need the lock of
// the queue.
type notifier struct {
	wake chan struct{} // capacity 1
	done chan struct{} // closed by close
	fd   readyFD       // readable while the queue is not empty
}

func (b *notifier) init() {
	b.wake = make(chan struct{}, 1)
	b.done = make(chan struct{})
}

// signal reports that the queue is no longer empty.
func (b *notifier) signal() {
	b.fd.set()
	b.wakeOne()
}

func (b *notifier) wakeOne() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// update reports, after an event was removed, whether others are left. If so, it wakes
// another waiter: the channel holds one signal only.
func (b *notifier) update(left bool) {
	if left {
		b.wakeOne()
	} else {
		b.fd.clear()
	}
}

// wait returns nil when an event may be pending.
func (b *notifier) wait(ctx context.Context) error {
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
func (b *notifier) descriptor(left bool) int {
	select {
	case <-b.done:
		return -1
	default:
	}
	return b.fd.open(left)
}

// close makes all current and later calls of wait return ucs.ErrClosed.
func (b *notifier) close() error {
	close(b.done)
	return b.fd.close()
}
