package soft

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/verbs"
)

// eventQueue holds asynchronous events until they are taken, and counts those
// that were not acknowledged yet.
type eventQueue struct {
	waiting atomic.Int32
	bell    bell

	mu      sync.Mutex         // guards the rest and the bell
	acked   sync.Cond          // L is mu
	queue   []verbs.AsyncEvent // from first on
	first   int
	unacked map[any]int // events taken of an object
	closed  bool
}

// object is what an event is about; nil: a port, the device, or nothing of this
// provider.
func object(e *verbs.AsyncEvent) any {
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

// raise queues an event. Engines call it, under their owner words: it does not
// wait for anybody who does more than take or leave an event.
func (d *device) raise(e verbs.AsyncEvent) {
	v := &d.events
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	if v.first > 0 && len(v.queue) == cap(v.queue) { // a queue that is never quite empty does not grow
		n := copy(v.queue, v.queue[v.first:])
		clear(v.queue[n:])
		v.queue, v.first = v.queue[:n], 0
	}
	v.queue = append(v.queue, e)
	v.waiting.Add(1)
	if v.left() == 1 {
		v.bell.ring()
	}
}

// TryAsync takes an event.
func (d *device) TryAsync() (verbs.AsyncEvent, bool) {
	v := &d.events
	if v.waiting.Load() == 0 {
		return verbs.AsyncEvent{}, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left() == 0 {
		return verbs.AsyncEvent{}, false
	}
	e := v.queue[v.first]
	v.queue[v.first] = verbs.AsyncEvent{}
	v.first++
	if o := object(&e); o != nil {
		if v.unacked == nil {
			v.unacked = make(map[any]int)
		}
		v.unacked[o]++
	}
	v.taken()
	return e, true
}

// left is how many events wait.
func (v *eventQueue) left() int { return len(v.queue) - v.first }

// taken brings the rest up to date after events were taken out.
func (v *eventQueue) taken() {
	n := v.left()
	if n == 0 {
		v.queue, v.first = v.queue[:0], 0
	}
	v.waiting.Store(int32(n))
	v.bell.more(n > 0)
}

// Async waits for an event.
func (d *device) Async(ctx context.Context) (verbs.AsyncEvent, error) {
	for {
		if e, ok := d.TryAsync(); ok {
			return e, nil
		}
		if err := d.events.bell.wait(ctx); err != nil {
			return verbs.AsyncEvent{}, fmt.Errorf("wait for event of soft device %q: %w", d.info.Name, err)
		}
	}
}

// AsyncFD is readable while there are events; it is made when it is first asked
// for. -1: the system gave none.
func (d *device) AsyncFD() int {
	v := &d.events
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.bell.descriptor(v.left() > 0)
}

// Ack says that an event was dealt with; one that was not taken is ignored.
func (d *device) Ack(e verbs.AsyncEvent) {
	v := &d.events
	o := object(&e)
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

// settle drops the events of an object that is being closed and waits until
// those that were taken have been acknowledged. The caller holds no lock and
// raises none any more.
func (d *device) settle(o any) {
	v := &d.events
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left() > 0 {
		rest := slices.DeleteFunc(v.queue[v.first:], func(e verbs.AsyncEvent) bool { return object(&e) == o })
		v.queue = v.queue[:v.first+len(rest)]
		v.taken()
	}
	v.acked.L = &v.mu
	for v.unacked[o] > 0 {
		v.acked.Wait()
	}
}

// close ends the waits of Async.
func (v *eventQueue) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	_ = v.bell.close()
}
