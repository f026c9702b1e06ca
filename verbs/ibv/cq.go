//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// cq is a completion queue.
type cq struct {
	d    *device
	c    C.struct_goucx_cq
	kept kept

	channel *compChannel
	domain  *pd

	// Guarded by d.mu.
	users  int // queue pairs
	closed bool
}

// CreateCQ creates a completion queue.
//
// Errors: ucs.ErrUnsupported with IgnoreOverrun on a device that lacks it.
func (d *device) CreateCQ(c verbs.CQConfig) (verbs.CQ, error) {
	fail := func(err error) (verbs.CQ, error) { return nil, fmt.Errorf("create completion queue: %w", err) }
	ch, err := ownObjectOrNil[*compChannel](d, "completion channel", c.Channel)
	if err != nil {
		return fail(err)
	}
	domain, err := ownObjectOrNil[*pd](d, "protection domain", c.Domain)
	if err != nil {
		return fail(err)
	}
	if domain != nil && domain.parent == nil {
		return fail(fmt.Errorf("a CQConfig.Domain that is a protection domain, want a parent domain: %w", ucs.ErrInvalid))
	}
	if c.Depth < 1 || c.Depth > d.attr.MaxCQE {
		return fail(fmt.Errorf("depth %d, want 1 to %d: %w", c.Depth, d.attr.MaxCQE, ucs.ErrInvalid))
	}
	q := &cq{d: d, channel: ch, domain: domain}
	d.mu.Lock()
	defer d.mu.Unlock()
	if domain != nil && domain.closed {
		return fail(fmt.Errorf("the protection domain is closed: %w", ucs.ErrClosed))
	}
	if err := d.admit(kindCQ); err != nil {
		return fail(err)
	}
	if err := q.create(c); err != nil {
		d.openObjects[kindCQ]--
		return fail(err)
	}
	if ch != nil {
		ch.users++
	}
	if domain != nil {
		domain.children++
	}
	d.cqs[q] = struct{}{}
	d.events.add(q.pointer(), q)
	return q, nil
}

// create creates the queue of libibverbs. A device that has no queues without locks makes one
// with locks.
func (q *cq) create(c verbs.CQConfig) error {
	var ch *C.struct_ibv_comp_channel
	if q.channel != nil {
		ch = q.channel.c
	}
	single := c.SingleThreaded || q.domain != nil && q.domain.td != nil
	if single {
		q.c.gate.single = 1
	}
	var flags C.uint32_t
	if c.IgnoreOverrun {
		flags |= C.IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN
	}
	try := func(flags C.uint32_t, domain *C.struct_ibv_pd) (err error) {
		q.c.cq, err = C.goucx_create_cq(q.d.c, C.int(c.Depth), C.uint64_t(c.Cookie), ch, domain, flags)
		return err
	}
	if single {
		if q.domain != nil && q.domain.ownC && q.domain.td != nil {
			_ = try(flags|C.IBV_CREATE_CQ_ATTR_SINGLE_THREADED, q.domain.c)
		}
		if q.c.cq == nil {
			_ = try(flags|C.IBV_CREATE_CQ_ATTR_SINGLE_THREADED, nil)
		}
	}
	if q.c.cq != nil {
		return nil
	}
	err := try(flags, nil)
	if q.c.cq != nil {
		return nil
	}
	if c.IgnoreOverrun {
		return fmt.Errorf("a queue that ignores overruns: %w: %w", ucs.ErrUnsupported, err)
	}
	return memoryFault(err)
}

// Arm requests one event.
func (q *cq) Arm(solicitedOnly bool) ucs.Status {
	if q.channel == nil {
		return ucs.InvalidParam
	}
	only := C.int(0)
	if solicitedOnly {
		only = 1
	}
	return status(errnoOf(C.goucx_req_notify(&q.c, only)))
}

// Resize changes the depth.
func (q *cq) Resize(depth int) error {
	fail := func(err error) error { return fmt.Errorf("resize completion queue to %d: %w", depth, err) }
	if depth < 1 || depth > q.d.attr.MaxCQE {
		return fail(fmt.Errorf("want 1 to %d: %w", q.d.attr.MaxCQE, ucs.ErrInvalid))
	}
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	if q.closed {
		return fail(ucs.ErrClosed)
	}
	if code, no := C.ibv_resize_cq(q.c.cq, C.int(depth)); code != 0 {
		if no == nil {
			return fail(returned(code))
		}
		return fail(fault(no))
	}
	return nil
}

// Moderate delays and combines events.
//
// Errors: ucs.ErrUnsupported on a device that cannot; ucs.ErrInvalid beyond what it can hold:
// 65535 completions or microseconds.
func (q *cq) Moderate(count int, period time.Duration) error {
	fail := func(err error) error {
		return fmt.Errorf("moderate completion queue to %d completions, %v: %w", count, period, err)
	}
	us := period.Microseconds()
	if count < 0 || count > math.MaxUint16 || us < 0 || us > math.MaxUint16 {
		return fail(fmt.Errorf("want 0 to %d completions and microseconds: %w", math.MaxUint16, ucs.ErrInvalid))
	}
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	if q.closed {
		return fail(ucs.ErrClosed)
	}
	if code := C.goucx_moderate(q.c.cq, C.uint16_t(count), C.uint16_t(us)); code != 0 {
		return fail(returned(code))
	}
	return nil
}

// Close destroys the queue.
func (q *cq) Close() error {
	d := q.d
	d.mu.Lock()
	if q.closed {
		d.mu.Unlock()
		return nil
	}
	if q.users > 0 {
		d.mu.Unlock()
		return fmt.Errorf("close completion queue: %d queue pairs use it: %w", q.users, ucs.ErrBusy)
	}
	q.closed = true
	d.mu.Unlock()
	C.goucx_close_gate(&q.c.gate)
	d.events.remove(q.pointer(), q)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.openObjects[kindCQ]--
	delete(d.cqs, q)
	d.closedCalls[cntCQCalls] += uint64(q.c.gate.calls)
	if q.channel != nil {
		q.channel.users--
	}
	if q.domain != nil {
		q.domain.children--
	}
	if code := C.ibv_destroy_cq(q.c.cq); code != 0 && !d.gone.Load() {
		return fmt.Errorf("close completion queue: %w", returned(code))
	}
	return nil
}
