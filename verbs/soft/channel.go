package soft

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// compChannel carries the events of completion queues: a list of the queues that
// have some, so that an event costs no memory.
type compChannel struct {
	d    *device
	bell bell

	mu          sync.Mutex // guards the list, the links of its queues and the bell
	first, last *cq
	waiting     atomic.Int32 // queues in the list

	// Under d.mu.
	users  int
	closed bool
}

// chanLink is a completion queue's place in the list of its channel.
type chanLink struct {
	next   *cq
	events int // of the queue; it is in the list while there are some
}

// CreateCompChannel makes a completion channel.
func (d *device) CreateCompChannel() (verbs.CompChannel, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(kindChannel, 0); err != nil {
		return nil, fmt.Errorf("create completion channel: %w", err)
	}
	ch := &compChannel{d: d}
	ch.bell.init()
	return ch, nil
}

// post adds an event of c.
func (ch *compChannel) post(c *cq) {
	ch.mu.Lock()
	c.event.events++
	if c.event.events == 1 {
		ch.append(c)
		ch.bell.ring()
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
	ch.waiting.Add(1)
}

// pop takes the first queue out of the list.
func (ch *compChannel) pop() *cq {
	c := ch.first
	ch.first, c.event.next = c.event.next, nil
	if ch.first == nil {
		ch.last = nil
	}
	ch.waiting.Add(-1)
	return c
}

// TryEvent takes an event. Queues that have several take turns.
func (ch *compChannel) TryEvent() (uint64, bool) {
	if ch.waiting.Load() == 0 {
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
	ch.bell.more(ch.first != nil)
	return c.cookie, true
}

// forget drops the events of a queue that is closed.
func (ch *compChannel) forget(c *cq) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	c.event.events = 0
	for range ch.waiting.Load() {
		if o := ch.pop(); o != c {
			ch.append(o)
		}
	}
	ch.bell.more(ch.first != nil)
}

// Event waits for an event.
func (ch *compChannel) Event(ctx context.Context) (uint64, error) {
	for {
		if cookie, ok := ch.TryEvent(); ok {
			return cookie, nil
		}
		if err := ch.bell.wait(ctx); err != nil {
			return 0, fmt.Errorf("wait for completion event: %w", err)
		}
	}
}

// FD is readable while there are events; it is made when it is first asked for.
// -1: the system gave none.
func (ch *compChannel) FD() int {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.bell.descriptor(ch.first != nil)
}

// Close gives the channel back; who waits in Event gets ucs.ErrClosed.
func (ch *compChannel) Close() error {
	d := ch.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if ch.closed {
		return nil
	}
	if ch.users > 0 {
		return fmt.Errorf("close completion channel: %d completion queues use it: %w", ch.users, ucs.ErrBusy)
	}
	ch.closed = true
	d.made[kindChannel]--
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.bell.close()
}
