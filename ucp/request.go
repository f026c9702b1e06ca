package ucp

import (
	"context"
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// Request is an operation that may still be on its way. The zero Request is
// done and ended well. There is nothing to free: dropping a Request is legal,
// and a look at one that ended long ago is defined (it ended well; an error is
// kept until its endpoint closes, and some time beyond).
//
// The methods have the concurrency of the Worker that made it.
type Request struct {
	t  *Thread
	id uint64 // slot and generation, or refused (see refuse)
}

// refusedBit marks a request that was refused at the call:
//
//	63 | 62..56 status | 55..48 operation | 47..32 endpoint generation | 31..0 endpoint
const refusedBit = 1 << 63

// refuse makes the request of an operation that never began.
//
//go:noinline
func (t *Thread) refuse(op opKind, e Endpoint, st ucs.Status) Request {
	return Request{t, refusedBit | uint64(st)<<56 | uint64(op)<<48 | uint64(uint16(e.id>>32))<<32 | uint64(uint32(e.id))}
}

// Done reports whether the operation has ended. It does not progress.
//
//gcassert:inline
func (r Request) Done() bool {
	return r.id == 0 || r.doneSlow()
}

//go:noinline
func (r Request) doneSlow() bool {
	if r.id&refusedBit != 0 {
		return true
	}
	w := r.t.w
	r.t.lock()
	done := !w.slab.live(r.id)
	r.t.unlock()
	return done
}

// Err is the error of an operation that has ended, nil before. It does not
// progress, and does not consume the result of a receive.
func (r Request) Err() error {
	if r.id == 0 {
		return nil
	}
	r.t.lock()
	defer r.t.unlock()
	_, err := r.t.w.look(r.id)
	return err
}

// Wait progresses the worker until the operation has ended, and returns its error.
// If ctx ends before that, Wait returns its cause, and the operation goes on: the
// library owns the buffer until it ends.
//
//gcassert:inline
func (r Request) Wait(ctx context.Context) error {
	if r.id == 0 {
		return nil
	}
	_, err := r.waitSlow(ctx)
	return err
}

// waitSlow is Wait for any request but the zero one. It also reports whether the
// operation has ended: err is its outcome then, else the reason why the wait stopped.
//
//go:noinline
func (r Request) waitSlow(ctx context.Context) (ended bool, err error) {
	if r.id&refusedBit != 0 {
		return true, r.Err()
	}
	w := r.t.w
	if r.t.locked {
		_, ended, err = w.waitShared(ctx, r.id, false)
		return ended, err
	}
	i, g := uint32(r.id), uint32(r.id>>32)
	var p pause
	for {
		s := &w.slab.slots[i]
		if s.gen != g {
			return true, nil
		}
		if s.state != slotLive {
			return w.look(r.id)
		}
		if err := p.after(ctx, w, w.Progress(), r.id); err != nil {
			if ended, outcome := w.look(r.id); ended { // by this pass
				return true, outcome
			}
			return false, err
		}
	}
}

// look reports whether the operation has ended and how.
func (w *Worker) look(id uint64) (ended bool, err error) {
	if id&refusedBit != 0 {
		return true, w.refusal(id)
	}
	i := w.slab.find(id)
	if i == 0 {
		return true, nil
	}
	s := &w.slab.slots[i]
	switch {
	case s.state == slotLive:
		return false, nil
	case s.status == ucs.OK:
		return true, nil
	}
	err = w.slotErr(i)
	if s.flags&flagKept == 0 {
		s.state = slotRead
		w.slab.orphan(i)
	}
	return true, err
}

// Cancel ends a message or its receive at once, with ErrCanceled, whatever the
// peer does; the buffer is the caller's then. Only where a device copies the
// message from one buffer to the other right now, both end with that. A message that had gone out whole
// may still be received; one that was on its way ends its receive too, and a
// receive that is canceled in the middle ends its send. Put, get, atomics, flush
// and fence go on as if not asked. Asking late or twice is harmless.
func (r Request) Cancel() {
	if r.id == 0 || r.id&refusedBit != 0 {
		return
	}
	r.t.lock()
	defer r.t.unlock()
	if r.t.w.slab.live(r.id) {
		r.t.w.cancel(uint32(r.id))
	}
}

// String gives operation, peer, lane and state, for logs.
func (r Request) String() string {
	if r.id == 0 {
		return "request: done"
	}
	r.t.lock()
	defer r.t.unlock()
	w := r.t.w
	if r.id&refusedBit != 0 {
		return "request: " + w.refusal(r.id).Error()
	}
	i := w.slab.find(r.id)
	if i == 0 {
		return "request: done"
	}
	s := &w.slab.slots[i]
	if s.state != slotLive && s.status != ucs.OK {
		return "request: " + w.slotErr(i).Error()
	}
	e := OpError{Op: s.op.info().name, Peer: w.peerName(s.ep), Lane: w.laneName(s.lane), Err: ucs.ErrInProgress}
	if s.state != slotLive {
		return fmt.Sprintf("request: %s: done", e.Op)
	}
	return "request: " + e.Error()
}

// WaitAll waits for all of rs and returns the first error in their order. When ctx
// ends it does not wait for the rest.
func WaitAll(ctx context.Context, rs ...Request) error {
	var first error
	for _, r := range rs {
		if r.id == 0 {
			continue
		}
		ended, err := r.waitSlow(ctx)
		if first == nil {
			first = err
		}
		if !ended {
			break
		}
	}
	return first
}

// Finish is as Wait, but the end of ctx cancels the operation, and Finish returns
// only when the buffer is the caller's again. An operation that ends well
// nevertheless has no error. Finish returns ErrBufferExposed if the operation does
// not end within CloseTimeout.
func (r Request) Finish(ctx context.Context) error {
	if r.id == 0 {
		return nil
	}
	ended, reason := r.waitSlow(ctx)
	if ended {
		return reason
	}
	r.Cancel()
	ended, err := r.t.w.waitBounded(r)
	switch {
	case !ended:
		return fmt.Errorf("%w: %w", ErrBufferExposed, err)
	case errors.Is(err, ErrCanceled):
		return fmt.Errorf("%w: %w", err, reason)
	default:
		return err
	}
}
