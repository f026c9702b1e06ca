package ucp

import (
	"context"
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
)

// Message describes a received message.
type Message struct {
	// Tag is the sender's tag, all bits.
	Tag Tag
	// Len is the length of the message in bytes. If the message was truncated it is still
	// the sender's length.
	Len int
}

// RecvRequest is a receive. The first Wait, Finish or Notify consumes its result. A second
// one fails with ErrStale. A receive whose result will not be read must be dropped. The
// methods of Request do not consume the result.
type RecvRequest struct{ Request }

// Wait progresses the worker until the message is received. If ctx ends before that, Wait
// returns context.Cause(ctx) and the receive goes on. The library owns the buffer until the
// receive completes. Wait panics for a nil ctx if it has to wait.
//
//hot:bench BenchmarkTagPair
//go:nosplit
func (r RecvRequest) Wait(ctx context.Context) (Message, error) {
	if r.t == nil || r.t.locked {
		return r.waitRecvSlow(ctx)
	}
	w := r.t
	i, g := uint32(r.id), uint32(r.id>>32)
	var p waitLoop
	for {
		b := &w.slab
		if int(i) >= len(b.Slots) || b.Slots[i].Gen != g { // refused or stale
			return r.waitRecvSlow(ctx)
		}
		s := &b.Slots[i]
		if s.Outcome() == request.ReceivedTag {
			// Same as consume, but without the call.
			s.Gen, s.State, s.Next = request.NextGen(g), request.StateFree, b.FreeList
			b.FreeList = i
			m := request.As[recvOp](s)
			return Message{Tag(m.tag), int(m.length)}, nil
		}
		if s.State == request.StateDone {
			return w.consume(i)
		}
		p.n++
		p.did += uint32(w.progress())
		if p.n >= w.ctxCheckPasses {
			if err := p.slow(ctx, w, r.id); err != nil {
				return r.consumeEnded(err)
			}
		}
	}
}

// consumeEnded consumes the result of receive id if the last pass has completed it.
// Otherwise it returns the reason why the wait stopped.
//
//go:noinline
func (r Request) consumeEnded(reason error) (Message, error) {
	if m, ended, err := r.tryConsume(); ended {
		return m, err
	}
	return Message{}, reason
}

// waitRecvSlow is Wait for every thread mode and request state.
//
//go:noinline
func (r RecvRequest) waitRecvSlow(ctx context.Context) (Message, error) {
	if r.t == nil {
		return Message{}, ErrStale
	}
	w := r.t
	w.owner.lockShared()
	if m, ok := w.slab.consumeDone(r.id); ok {
		w.unlockShared()
		return m, nil
	}
	if w.owner.state == ownerNone && ctx != nil && w.slab.Live(r.id) && r.id&refusedBit == 0 && w.mayWait() == nil {
		w.owner.state = ownerRuns // as waitShared, with fewer looks
		m, _, err := r.progressUntil(ctx, true)
		return m, err
	}
	m, _, err := r.waitShared(ctx, true)
	return m, err
}

// tryConsume consumes the result of receive id if it has completed.
func (r Request) tryConsume() (m Message, ended bool, err error) {
	w, id := r.t, r.id
	if id&refusedBit != 0 {
		return Message{}, true, r.refusal()
	}
	i := w.slab.Find(id)
	if i == 0 {
		return Message{}, true, ErrStale
	}
	if w.slab.Slots[i].State == request.StateLive {
		return Message{}, false, nil
	}
	m, err = w.consume(i)
	return m, true, err
}

// consume returns the result of the receive in slot i and releases the slot.
func (w *thread) consume(i uint32) (m Message, err error) {
	s := request.As[recvOp](&w.slab.Slots[i])
	m = Message{Tag(s.tag), int(s.length)}
	if s.Status != ucs.OK {
		err = w.slotErr(i)
	}
	w.slab.release(i)
	return m, err
}

// Drop declares that the result will not be read. A receive that has not completed goes on,
// and the library owns its buffer until it completes.
func (r RecvRequest) Drop() {
	if r.t == nil || r.id&refusedBit != 0 {
		return
	}
	r.t.lock()
	defer r.t.unlock()
	w := r.t
	i := w.slab.Find(r.id)
	if i == 0 {
		return
	}
	if s := &w.slab.Slots[i]; s.State == request.StateLive {
		s.Flags &^= request.FlagHasResult
		s.Flags |= request.FlagReported
		return
	}
	w.slab.release(i)
}

// Tie makes the receive fail when e fails or closes, as long as it is unmatched. A receive
// alone cannot know which peer it depends on. Tie connects e, so that its failure can be
// detected. An endpoint on a Thread of the worker counts as the worker's. It returns r.
func (r RecvRequest) Tie(e Endpoint) RecvRequest {
	if r.t == nil || r.id&refusedBit != 0 {
		return r
	}
	w := r.t
	w.lock()
	defer w.unlock()
	i := w.slab.Find(r.id)
	if i == 0 || !w.matching.posted.Has(i) {
		return r
	}
	if e.t != nil && e.t.parent == w {
		e.t = w
	}
	st := ucs.Closed
	if k := w.endpoint(e); k != 0 {
		st = w.connect(k) // before the tie, since a failure here would also end a tied receive
		w.slab.Slots[i].EP = k
		w.slab.Slots[i].Flags |= request.FlagTied
		w.polling.checkSoon()
	}
	if st != ucs.OK {
		w.matching.posted.Remove(i)
		w.end(i, st)
	}
	return r
}

// TieAny makes the receive fail when any endpoint of its worker fails, as long as it is
// unmatched. It is for a receive from any source, which depends on no peer in particular. The
// error names the peer (OpError.Peer) and has its reason. TieAny connects the endpoints of the
// worker that are not connected, so that their failures can be detected. An endpoint that is
// created later counts from its first operation on.
//
// An endpoint that has failed already ends the receive at once. So no failure is missed between
// two receives; a program that goes on without the peer closes that endpoint first. Closing an
// endpoint ends no such receive. TieAny returns r.
func (r RecvRequest) TieAny() RecvRequest {
	if r.t == nil || r.id&refusedBit != 0 {
		return r
	}
	w := r.t
	w.lock()
	defer w.unlock()
	i := w.slab.Find(r.id)
	if i == 0 || !w.matching.posted.Has(i) {
		return r
	}
	for k := 0; w.numEps[epIdle] > 0 && k < len(w.eps); k++ {
		if w.eps[k].state == epIdle {
			w.connect(uint32(k))
		}
	}
	w.slab.Slots[i].EP = 0
	w.slab.Slots[i].Flags |= request.FlagTied
	w.polling.checkSoon()
	if w.numEps[epFailed] > 0 {
		w.failTiedRecvs()
	}
	return r
}

// Finish is Wait, but the end of ctx cancels the receive. Finish returns only when the
// caller owns the buffer again. It returns the message if it arrived first, else an error
// that wraps ErrCanceled and context.Cause(ctx).
func (r RecvRequest) Finish(ctx context.Context) (Message, error) {
	m, reason := r.Wait(ctx)
	if r.t == nil || reason == nil || r.id&refusedBit != 0 {
		return m, reason
	}
	r.t.lock()
	consumed := r.t.slab.Find(r.id) == 0
	r.t.unlock()
	if consumed {
		return m, reason
	}
	r.Cancel()
	if ended, _ := r.waitBounded(); !ended {
		r.detach()
	}
	m, err := r.Wait(context.Background())
	if errors.Is(err, ErrCanceled) {
		err = fmt.Errorf("%w: %w", err, reason)
	}
	return m, err
}

// detach cancels a receive whose message has arrived in part, so that the caller owns
// the buffer again.
func (r RecvRequest) detach() {
	w := r.t
	r.t.lock()
	defer r.t.unlock()
	i := w.slab.Find(r.id)
	if i == 0 || w.slab.Slots[i].State != request.StateLive {
		return
	}
	for _, wi := range w.ifaces {
		for _, rx := range wi.rxConns {
			if rx.into == reasmRecv && rx.recvSlot == i {
				rx.into = reasmDiscard
				w.end(i, ucs.Canceled)
				return
			}
		}
	}
}
