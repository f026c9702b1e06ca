//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// eventQueue finds the objects of asynchronous events, and counts the events that the program has
// not acknowledged.
type eventQueue struct {
	c    *C.struct_ibv_context
	wait waiter

	mu      sync.Mutex // guards the fields below, and is held while an event is read and attributed
	acked   sync.Cond  // signalled when an object has no unacknowledged event left; L is mu
	objects map[pointer]any
	unacked map[any]int
}

func (v *eventQueue) init(c *C.struct_ibv_context) error {
	v.c = c
	v.acked.L = &v.mu
	v.objects, v.unacked = map[pointer]any{}, map[any]int{}
	if err := v.wait.init(int(c.async_fd)); err != nil {
		return fmt.Errorf("watch asynchronous events: %w", err)
	}
	return nil
}

func (v *eventQueue) close() error { return v.wait.close() }

// add makes the events of an object known as o's.
func (v *eventQueue) add(at pointer, o any) {
	v.mu.Lock()
	v.objects[at] = o
	v.mu.Unlock()
}

// remove waits until the events of o are acknowledged, and drops later ones. The caller holds no
// lock.
func (v *eventQueue) remove(at pointer, o any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.unacked[o] > 0 {
		v.acked.Wait()
	}
	delete(v.objects, at)
}

// next reads an event and attributes it. Events of objects that are being closed are dropped.
func (v *eventQueue) next() (e verbs.AsyncEvent, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for {
		var c C.struct_ibv_async_event
		at, no := readAsync(v.c, &c)
		if no != 0 {
			return e, false
		}
		e = verbs.AsyncEvent{Type: verbs.EventType(c.event_type)}
		if at == nil {
			e.Port = uint8(portOf(&c))
			return e, true
		}
		o := v.objects[at]
		switch o := o.(type) {
		case *qp:
			e.QP = o
		case *cq:
			e.CQ = o
		case *srq:
			e.SRQ = o
		default:
			continue
		}
		v.unacked[o]++
		return e, true
	}
}

// TryAsync returns the next event; false: there is none.
func (d *device) TryAsync() (verbs.AsyncEvent, bool) {
	e, ok := d.events.next()
	if ok && e.Type == verbs.EventDeviceFatal {
		d.fail()
	}
	return e, ok
}

// fail ends the use of a device that was removed or has failed: nothing can be posted or created any
// more, and queues are unusable once they are empty.
func (d *device) fail() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone.Store(true)
	for q := range d.qps {
		q.c.gone, q.c.can_send, q.c.can_recv = 1, 0, 0
	}
	for c := range d.cqs {
		c.c.gone = 1
	}
	for s := range d.srqs {
		s.c.gone = 1
	}
}

// Async waits for an event in the runtime's network poller.
func (d *device) Async(ctx context.Context) (e verbs.AsyncEvent, err error) {
	err = d.events.wait.until(ctx, func() (ok bool) {
		e, ok = d.TryAsync()
		return ok
	})
	if err != nil {
		return e, fmt.Errorf("wait for event of RDMA device %q: %w", d.info.Name, err)
	}
	return e, nil
}

// AsyncFD returns the descriptor of the device's events.
func (d *device) AsyncFD() int { return int(d.c.async_fd) }

// Ack acknowledges an event. It ignores an event that TryAsync has not returned.
func (d *device) Ack(e verbs.AsyncEvent) {
	var o any
	switch {
	case e.QP != nil:
		o = e.QP
	case e.CQ != nil:
		o = e.CQ
	case e.SRQ != nil:
		o = e.SRQ
	}
	v := &d.events
	v.mu.Lock()
	defer v.mu.Unlock()
	switch n := v.unacked[o]; n {
	case 0:
	case 1:
		delete(v.unacked, o)
		v.acked.Broadcast()
	default:
		v.unacked[o] = n - 1
	}
}

// compChannel is a completion channel.
type compChannel struct {
	d    *device
	c    *C.struct_ibv_comp_channel
	gate gate
	wait waiter

	queues objects.Uses // guarded by device.mu
}

// CreateCompChannel creates a completion channel.
func (d *device) CreateCompChannel() (verbs.CompChannel, error) {
	fail := func(err error) (verbs.CompChannel, error) {
		return nil, fmt.Errorf("create completion channel: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(objects.Channel); err != nil {
		return fail(err)
	}
	ch := &compChannel{d: d}
	var err error
	if ch.c, err = C.ibv_create_comp_channel(d.c); ch.c == nil {
		d.open.Release(objects.Channel)
		return fail(fault(err))
	}
	if err := ch.wait.init(int(ch.c.fd)); err != nil {
		d.open.Release(objects.Channel)
		C.ibv_destroy_comp_channel(ch.c)
		return fail(err)
	}
	return ch, nil
}

// FD returns the descriptor of the channel's events.
func (ch *compChannel) FD() int { return int(ch.c.fd) }

// TryEvent returns the cookie of the next event; false: there is none.
func (ch *compChannel) TryEvent() (cookie uint64, ok bool) {
	if !ch.gate.enter() {
		return 0, false
	}
	defer ch.gate.leave()
	var k C.uint64_t
	ok = C.goucx_next_event(ch.c, &k) == 0
	return uint64(k), ok
}

// Event waits for an event in the runtime's network poller.
func (ch *compChannel) Event(ctx context.Context) (cookie uint64, err error) {
	err = ch.wait.until(ctx, func() (ok bool) {
		cookie, ok = ch.TryEvent()
		return ok
	})
	if err != nil {
		return 0, fmt.Errorf("wait for completion event: %w", err)
	}
	return cookie, nil
}

// Close destroys the channel. Calls of Event that wait return ucs.ErrClosed.
func (ch *compChannel) Close() error {
	d := ch.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if first, err := ch.queues.Close("completion queues"); err != nil || !first {
		return closeError("completion channel", err)
	}
	ch.gate.close()
	d.open.Release(objects.Channel)
	err := ch.wait.close()
	if code := C.ibv_destroy_comp_channel(ch.c); code != 0 {
		err = errors.Join(err, fmt.Errorf("close completion channel: %w", returned(code)))
	}
	return err
}
