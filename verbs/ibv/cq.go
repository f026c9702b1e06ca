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
	"github.com/goucx/goucx/verbs/internal/objects"
)

// cq is a completion queue.
type cq struct {
	d    *device
	c    C.struct_goucx_cq
	kept kept

	channel *compChannel
	domain  *pd

	qps objects.Uses // the ends of queue pairs; guarded by d.mu
}

// CreateCQ creates a completion queue.
//
// Errors: ucs.ErrUnsupported with IgnoreOverrun on a device that lacks it.
func (d *device) CreateCQ(c verbs.CQConfig) (verbs.CQ, error) {
	fail := func(err error) (verbs.CQ, error) { return nil, fmt.Errorf("create completion queue: %w", err) }
	ch, err := objects.OwnOrNil[*compChannel](d, "completion channel", c.Channel)
	if err != nil {
		return fail(err)
	}
	domain, err := objects.OwnOrNil[*pd](d, "protection domain", c.Domain)
	if err != nil {
		return fail(err)
	}
	if domain != nil && !domain.IsParent() {
		return fail(fmt.Errorf("a CQConfig.Domain that is a protection domain, want a parent domain: %w", ucs.ErrInvalid))
	}
	if err := objects.CheckDepth(&d.attr, c.Depth); err != nil {
		return fail(err)
	}
	q := &cq{d: d, channel: ch, domain: domain}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := q.admit(); err != nil {
		return fail(err)
	}
	if err := q.create(c); err != nil {
		q.release()
		return fail(err)
	}
	d.cqs[q] = struct{}{}
	d.events.add(q.pointer(), q)
	return q, nil
}

// admit counts the queue in the device, and in its channel and its domain.
func (q *cq) admit() (err error) {
	if q.channel != nil {
		if err := q.channel.queues.CheckOpen("completion channel"); err != nil {
			return err
		}
	}
	if q.domain != nil {
		err = q.domain.admit(objects.CQ)
	} else {
		err = q.d.admit(objects.CQ)
	}
	if err == nil && q.channel != nil {
		q.channel.queues.Add()
	}
	return err
}

// release undoes admit.
func (q *cq) release() {
	if q.domain != nil {
		q.domain.Release(objects.CQ)
	} else {
		q.d.open.Release(objects.CQ)
	}
	if q.channel != nil {
		q.channel.queues.Release()
	}
}

// create creates the queue of libibverbs. A device that has no queues without locks makes one
// with locks.
func (q *cq) create(c verbs.CQConfig) error {
	var ch *C.struct_ibv_comp_channel
	if q.channel != nil {
		ch = q.channel.c
	}
	single := c.SingleThreaded || q.domain.single()
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
		if q.domain.single() && q.domain.ownC {
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
	fail := func(err error) error { return fmt.Errorf("resize completion queue: %w", err) }
	if err := objects.CheckDepth(&q.d.attr, depth); err != nil {
		return fail(err)
	}
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	if q.qps.Closed() {
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
	if q.qps.Closed() {
		return fail(ucs.ErrClosed)
	}
	if code := C.goucx_moderate(q.c.cq, C.uint16_t(count), C.uint16_t(us)); code != 0 {
		return fail(returned(code))
	}
	return nil
}

// Account returns the account of the queue pairs that use the queue.
func (q *cq) Account() *objects.Uses { return &q.qps }

// Close destroys the queue.
func (q *cq) Close() error {
	d := q.d
	if first, err := d.beginClose(q, q.pointer(), &q.qps, &q.c.gate); err != nil || !first {
		return closeError("completion queue", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	q.release()
	delete(d.cqs, q)
	d.closedCalls[cntCQCalls] += uint64(q.c.gate.calls)
	return closeError("completion queue", d.freed(C.ibv_destroy_cq(q.c.cq)))
}

// beginClose keeps posts and polls out of a queue that nothing uses, and waits for the program to
// acknowledge its events. It returns false if the queue was closed before.
func (d *device) beginClose(queue any, at pointer, uses *objects.Uses, gate *C.struct_goucx_gate) (first bool, err error) {
	d.mu.Lock()
	first, err = uses.Close("ends of queue pairs")
	d.mu.Unlock()
	if first {
		C.goucx_close_gate(gate)
		d.events.remove(at, queue)
	}
	return first, err
}

// closeError adds the operation to an error, which may be nil.
func closeError(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("close %s: %w", name, err)
}
