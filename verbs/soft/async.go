package soft

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/verbs"
)

// eventQueue holds asynchronous events until TryAsync returns them. It counts returned
// events that are not acknowledged yet.
type eventQueue struct {
	pending  atomic.Int32
	notifier notifier

	mu      sync.Mutex         // guards the fields below and the bell
	acked   sync.Cond          // signalled when an object has no unacknowledged event left; L is mu
	queue   []verbs.AsyncEvent // the events from index first on are pending
	first   int
	unacked map[any]int // unacknowledged events by object
	closed  bool
}

// eventObject returns the queue pair, completion queue or shared receive queue of an event.
// It returns nil for events of a port or device, and for objects of another provider.
func eventObject(e *verbs.AsyncEvent) any {
	if q, ok := e.QP.(*qp); ok {
		return q
	}
	if c, ok := e.CQ.(*cq); ok {
		return c
	}
	if s, ok := e.SRQ.(*srq); ok {
		return s
	}
	return nil
}

// raise queues an event.
//
// Concurrency: engines call it while they own a queue pair. It waits only for v.mu,
// which is held for short times.
func (d *device) raise(e verbs.AsyncEvent) {
	v := &d.events
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	if v.first > 0 && len(v.queue) == cap(v.queue) { // a queue that is never quite empty must not grow
		n := copy(v.queue, v.queue[v.first:])
		clear(v.queue[n:])
		v.queue, v.first = v.queue[:n], 0
	}
	v.queue = append(v.queue, e)
	v.pending.Add(1)
	if v.count() == 1 {
		v.notifier.signal()
	}
}

// TryAsync returns the next event; false: there is none. It never blocks.
func (d *device) TryAsync() (verbs.AsyncEvent, bool) {
	v := &d.events
	if v.pending.Load() == 0 {
		return verbs.AsyncEvent{}, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.count() == 0 {
		return verbs.AsyncEvent{}, false
	}
	e := v.queue[v.first]
	v.queue[v.first] = verbs.AsyncEvent{}
	v.first++
	if o := eventObject(&e); o != nil {
		if v.unacked == nil {
			v.unacked = make(map[any]int)
		}
		v.unacked[o]++
	}
	v.updatePending()
	return e, true
}

// count returns the number of pending events.
func (v *eventQueue) count() int { return len(v.queue) - v.first }

// updatePending updates the counter and the bell after events were removed.
func (v *eventQueue) updatePending() {
	n := v.count()
	if n == 0 {
		v.queue, v.first = v.queue[:0], 0
	}
	v.pending.Store(int32(n))
	v.notifier.update(n > 0)
}

// Async waits for an event.
func (d *device) Async(ctx context.Context) (verbs.AsyncEvent, error) {
	for {
		if e, ok := d.TryAsync(); ok {
			return e, nil
		}
		if err := d.events.notifier.wait(ctx); err != nil {
			return verbs.AsyncEvent{}, fmt.Errorf("wait for event of soft device %q: %w", d.info.Name, err)
		}
	}
}

// AsyncFD returns a descriptor that is readable while events are pending. The first
// call creates it. It returns -1 if the system provides none.
func (d *device) AsyncFD() int {
	v := &d.events
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.notifier.descriptor(v.count() > 0)
}

// Ack acknowledges an event. It ignores an event that TryAsync has not returned.
func (d *device) Ack(e verbs.AsyncEvent) {
	v := &d.events
	o := eventObject(&e)
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.unacked[o]
	if o == nil || n == 0 {
		return
	}
	if n > 1 {
		v.unacked[o] = n - 1
		return
	}
	delete(v.unacked, o)
	if v.acked.L != nil {
		v.acked.Broadcast()
	}
}

// discardEvents removes the pending events of an object that is being closed. It then waits
// until the events that TryAsync returned for it are acknowledged.
//
// The caller holds no lock, and raises no more events for the object.
func (d *device) discardEvents(o any) {
	v := &d.events
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.count() > 0 {
		rest := slices.DeleteFunc(v.queue[v.first:], func(e verbs.AsyncEvent) bool { return eventObject(&e) == o })
		v.queue = v.queue[:v.first+len(rest)]
		v.updatePending()
	}
	v.acked.L = &v.mu
	for v.unacked[o] > 0 {
		v.acked.Wait()
	}
}

// close ends all waits in Async and drops later events.
func (v *eventQueue) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	_ = v.notifier.close()
}
