package ucp

import (
	"context"
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// Message says what a receive got.
type Message struct {
	// Tag of the sender, all bits.
	Tag Tag
	// Len is the message's true length in bytes, also where it was truncated.
	Len int
}

// RecvRequest is a receive. Its result is consumed by the first Wait, Finish or
// Notify, a second answers ErrStale; one that nobody will read must be dropped.
// The methods of Request only look, and consume nothing.
type RecvRequest struct{ Request }

// Wait progresses the worker until the message is there. If ctx ends before that,
// Wait returns its cause, and the receive goes on: the library owns the buffer until
// it ends.
// hot: BenchmarkTagPair
//
//go:nosplit
func (r RecvRequest) Wait(ctx context.Context) (Message, error) {
	if r.t == nil || r.t.locked || r.id&refusedBit != 0 {
		return r.waitRecvSlow(ctx)
	}
	w := r.t.w
	i, g := uint32(r.id), uint32(r.id>>32)
	var p pause
	for {
		b := &w.slab
		s := &b.slots[i]
		if s.gen != g {
			return Message{}, ErrStale
		}
		if s.state == slotDone {
			if s.status != ucs.OK || s.flags&flagAside != 0 {
				return w.consume(i)
			}
			// As consume: a call less.
			s.gen, s.state, s.next = nextGen(g), slotFree, b.free
			b.free = i
			return Message{Tag(s.tag), int(s.n)}, nil
		}
		if err := p.after(ctx, w, w.Progress(), r.id); err != nil {
			return w.consumeEnded(r.id, err)
		}
	}
}

// consumeEnded consumes the result of receive id if the pass before has ended it, else
// it returns the reason why the wait stopped.
//
//go:noinline
func (w *Worker) consumeEnded(id uint64, reason error) (Message, error) {
	if m, ended, err := w.tryConsume(id); ended {
		return m, err
	}
	return Message{}, reason
}

// waitRecvSlow is Wait in every mode and state.
//
//go:noinline
func (r RecvRequest) waitRecvSlow(ctx context.Context) (Message, error) {
	if r.t == nil {
		return Message{}, ErrStale
	}
	w := r.t.w
	w.lockShared()
	if m, ok := w.takeDone(r.id); ok {
		w.unlockShared()
		return m, nil
	}
	m, _, err := w.waitLocked(ctx, r.id, true)
	return m, err
}

// tryConsume consumes the result of receive id where there is one.
func (w *Worker) tryConsume(id uint64) (m Message, ended bool, err error) {
	if id&refusedBit != 0 {
		return Message{}, true, w.refusal(id)
	}
	i := w.slab.find(id)
	if i == 0 {
		return Message{}, true, ErrStale
	}
	if w.slab.slots[i].state == slotLive {
		return Message{}, false, nil
	}
	m, err = w.consume(i)
	return m, true, err
}

// consume gives the result of the receive in slot i and releases it.
func (w *Worker) consume(i uint32) (m Message, err error) {
	s := &w.slab.slots[i]
	m = Message{Tag(s.tag), int(s.n)}
	if s.status != ucs.OK {
		err = w.slotErr(i)
	}
	w.slab.release(i)
	return m, err
}

// Drop says that nobody will read the result. A receive that has not ended goes
// on, its buffer stays ours until then.
func (r RecvRequest) Drop() {
	if r.t == nil || r.id&refusedBit != 0 {
		return
	}
	r.t.lock()
	defer r.t.unlock()
	w := r.t.w
	i := w.slab.find(r.id)
	if i == 0 {
		return
	}
	if s := &w.slab.slots[i]; s.state == slotLive {
		s.flags &^= flagKept
		s.flags |= flagReported
		return
	}
	w.slab.release(i)
}

// Tie makes the receive end with e's failure or close while it is unmatched: a
// receive alone cannot know whose death concerns it. It connects e, so that
// there is something to fail. It gives r.
func (r RecvRequest) Tie(e Endpoint) RecvRequest {
	if r.t == nil || r.id&refusedBit != 0 {
		return r
	}
	r.t.lock()
	r.t.w.tie(r.id, e)
	r.t.unlock()
	return r
}

func (w *Worker) tie(id uint64, e Endpoint) {
	i := w.slab.find(id)
	if i == 0 || !w.posted.Has(i) {
		return
	}
	st := ucs.Closed
	if k := w.endpoint(e); k != 0 {
		st = w.connect(k) // before the tie, which a refusal would end too
		w.slab.slots[i].ep = k
		w.slab.slots[i].flags |= flagTied
		w.eps[k].touched = true
	}
	if st != ucs.OK {
		w.posted.Remove(i)
		w.end(i, st)
	}
}

// Finish is as Wait, but the end of ctx cancels the receive, and Finish returns
// only when the buffer is the caller's again: with ErrCanceled, or with the
// message where that was faster.
func (r RecvRequest) Finish(ctx context.Context) (Message, error) {
	m, reason := r.Wait(ctx)
	if r.t == nil || reason == nil || !r.unread() {
		return m, reason
	}
	r.Cancel()
	if ended, _ := r.t.w.waitBounded(r.Request); !ended {
		r.detach()
	}
	m, err := r.Wait(context.Background())
	if errors.Is(err, ErrCanceled) {
		err = fmt.Errorf("%w: %w", err, reason)
	}
	return m, err
}

// unread reports whether the result was not consumed.
func (r RecvRequest) unread() bool {
	r.t.lock()
	defer r.t.unlock()
	return r.id&refusedBit == 0 && r.t.w.slab.find(r.id) != 0
}

// detach takes the buffer from a receive whose message stopped half-way.
func (r RecvRequest) detach() {
	w := r.t.w
	r.t.lock()
	defer r.t.unlock()
	i := w.slab.find(r.id)
	if i == 0 || w.slab.slots[i].state != slotLive {
		return
	}
	for _, p := range w.ports {
		for _, s := range p.sources {
			if s.into == intoReceive && s.recv == i {
				s.into = intoVoid
				w.end(i, ucs.Canceled)
				return
			}
		}
	}
}
