package soft

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// compChannel queues the events of completion queues. It is a list of the queues that
// have events, so an event allocates nothing.
type compChannel struct {
	d        *device
	notifier notifier

	mu          sync.Mutex // guards the list, the chanLink of each queue in it, and the bell
	first, last *cq
	pending     atomic.Int32 // queues in the list

	queues objects.Uses // guarded by device.mu
}

// chanLink is the place of a completion queue in the list of its channel.
type chanLink struct {
	next   *cq
	events int // events of the queue; it is in the list while there are any
}

// CreateCompChannel creates a completion channel.
func (d *device) CreateCompChannel() (verbs.CompChannel, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.open.Admit(objects.Channel, 0); err != nil {
		return nil, fmt.Errorf("create completion channel: %w", err)
	}
	ch := &compChannel{d: d}
	ch.notifier.init()
	return ch, nil
}

// post adds an event of c.
func (ch *compChannel) post(c *cq) {
	ch.mu.Lock()
	c.event.events++
	if c.event.events == 1 {
		ch.append(c)
		ch.notifier.signal()
	}
	ch.mu.Unlock()
}

func (ch *compChannel) append(c *cq) {
	if ch.last == nil {
		ch.first = c
	} else {
		ch.last.event.next = c
	}
	ch.last = c
	ch.pending.Add(1)
}

// pop removes the first queue from the list.
func (ch *compChannel) pop() *cq {
	c := ch.first
	ch.first, c.event.next = c.event.next, nil
	if ch.first == nil {
		ch.last = nil
	}
	ch.pending.Add(-1)
	return c
}

// TryEvent returns the cookie of the next event; false: there is none. Queues with
// several events take turns.
func (ch *compChannel) TryEvent() (uint64, bool) {
	if ch.pending.Load() == 0 {
		return 0, false
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.first == nil {
		return 0, false
	}
	c := ch.pop()
	if c.event.events--; c.event.events > 0 {
		ch.append(c)
	}
	ch.notifier.update(ch.first != nil)
	return c.cookie, true
}

// remove drops the events of a queue that is being closed.
func (ch *compChannel) remove(c *cq) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	c.event.events = 0
	for range ch.pending.Load() {
		if o := ch.pop(); o != c {
			ch.append(o)
		}
	}
	ch.notifier.update(ch.first != nil)
}

// Event waits for an event.
func (ch *compChannel) Event(ctx context.Context) (uint64, error) {
	for {
		if cookie, ok := ch.TryEvent(); ok {
			return cookie, nil
		}
		if err := ch.notifier.wait(ctx); err != nil {
			return 0, fmt.Errorf("wait for completion event: %w", err)
		}
	}
}

// FD returns a descriptor that is readable while events are pending. The first call
// creates it. It returns -1 if the system provides none.
func (ch *compChannel) FD() int {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.notifier.descriptor(ch.first != nil)
}

// Close destroys the channel. Calls of Event that wait return ucs.ErrClosed.
func (ch *compChannel) Close() error {
	d := ch.d
	d.mu.Lock()
	defer d.mu.Unlock()
	first, err := ch.queues.Close("completion queues")
	if err != nil {
		return fmt.Errorf("close completion channel: %w", err)
	}
	if !first {
		return nil
	}
	d.open.Release(objects.Channel)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.notifier.close()
}
