package ucp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/wireup"
)

// Close flushes the endpoint for at most CloseTimeout and then aborts it. It also
// closes the endpoint's remote keys. An error reports operations that could not be
// flushed. Other endpoints are not affected. Close is idempotent. Inside a handler it
// returns without waiting; the endpoint is closed when the flush completes.
func (e Endpoint) Close() error {
	if e.t == nil {
		return nil
	}
	w := e.t
	e.t.lock()
	k := w.endpoint(e)
	alive := k != 0 && w.eps[k].status == ucs.OK
	e.t.unlock()
	if k == 0 {
		return nil
	}
	if !alive {
		return e.closeNow(ErrClosed)
	}
	r := e.Flush()
	w.lock()
	handling := w.mayWait() != nil
	w.unlock()
	if handling && r.Notify(w.am.closeEndpoint, e.id) {
		return nil // a handler cannot wait: e is closed when r completes
	}
	_, err := r.waitBounded()
	if errors.Is(err, ErrPeerFailed) {
		// A transport may refuse operations before it reports the failure. The report has
		// the reason; on a timeout there is none.
		ctx, cancel := context.WithTimeout(context.Background(), w.ctx.closeTimeout)
		defer cancel()
		_ = w.waitUntil(ctx, func() bool { return e.Info().Err != nil })
		if errors.Is(e.Info().Err, errDisconnected) {
			err = nil
		}
	}
	return errors.Join(err, e.closeNow(ErrClosed))
}

// Abort closes the endpoint immediately. Its requests complete with ErrCanceled, which
// wraps cause. Data already passed to the transport may still be transmitted. A request
// whose memory a device is reading or writing completes when the device has finished. A
// message that the peer's device reads is withdrawn, and the connection fails at the
// peer, unless other endpoints use the connection too. Abort is idempotent.
func (e Endpoint) Abort(cause error) {
	if e.t == nil {
		return
	}
	err := ErrCanceled
	if cause != nil {
		err = fmt.Errorf("%w: %w", ErrCanceled, cause)
	}
	// Keys that cannot be closed now are closed with their domain.
	_ = e.closeNow(err)
}

// closeNow completes the requests of e with reason and frees it.
func (e Endpoint) closeNow(reason error) error {
	w := e.t
	var owned []io.Closer
	w.lock()
	if k := w.endpoint(e); k != 0 && w.cold[k] != nil {
		owned = slices.Collect(maps.Keys(w.cold[k].owned))
	}
	w.unlock()
	var errs []error
	for _, c := range owned {
		errs = append(errs, c.Close())
	}
	w.lock()
	if k := w.endpoint(e); k != 0 {
		if w.eps[k].state != epIdle {
			w.abort(k, reason)
			w.detach(k)
		}
		w.freeEndpoint(k)
	}
	// OnFailure of e is called before closeNow returns, if the call was pending. Inside a callback
	// it follows that callback. With ThreadMulti the goroutine that progresses makes the call.
	due := w.callbacks.failureDue(e) && w.outsideCallbacks() == nil
	if due && !w.am.multi {
		w.runCallbacks()
		due = false
	}
	w.unlock()
	if !due {
		return errors.Join(errs...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.ctx.closeTimeout)
	defer cancel()
	err := w.waitUntil(ctx, func() bool {
		w.lock()
		defer w.unlock()
		return !w.callbacks.failureDue(e)
	})
	if ctx.Err() != nil && err != nil { // otherwise the worker is closed; its Close makes the call
		errs = append(errs, fmt.Errorf("close: %w", errCallbackRuns))
	}
	return errors.Join(errs...)
}

// detach removes endpoint k from all slots. Completed operations keep their error until
// it is read or evicted.
func (w *thread) detach(k uint32) {
	for i := uint32(1); int(i) < len(w.slab.Slots); i++ {
		s := &w.slab.Slots[i]
		if s.EP != k || s.State == request.StateFree {
			continue
		}
		if s.State != request.StateLive && s.Status != ucs.OK {
			w.slab.saveErr(i, w.slotErr(i))
			if s.Flags&request.FlagHasResult == 0 {
				w.slab.keepUnclaimed(i)
			}
		}
		w.clearPending(i)
		if s.EP = 0; !exposes(s) {
			s.Lane = 0 // otherwise the lane stays open until the peer has read
		}
	}
}

// freeEndpoint frees endpoint k's slot and releases its lane.
func (w *thread) freeEndpoint(k uint32) {
	s := &w.eps[k]
	lane := s.lane
	if c := w.cold[k]; c != nil && lane == 0 {
		lane = c.lane
	}
	delete(w.cold, k)
	peer := s.peer
	s.enter(epFree)
	*s = epSlot{gen: s.gen + 1, peer: wireup.PeerID(w.epFree)}
	w.epFree = k
	if lane != 0 {
		w.releaseLane(lane)
	}
	w.peers.Release(peer)
}

// flushBeforeClose flushes several workers within timeout. It progresses all of them,
// because they may wait for each other.
func flushBeforeClose(ws []*Worker, timeout time.Duration) {
	rs := make([]Request, len(ws))
	for i, w := range ws {
		w.t.rejectUnmatched()
		rs[i] = w.t.flushAlive()
	}
	var p waitLoop
	limit := ucs.Now().Add(timeout)
	for slices.ContainsFunc(rs, func(r Request) bool { return !r.Done() }) && ucs.Now().Before(limit) {
		n := 0
		for _, w := range ws {
			n += w.Progress()
		}
		p.n++
		p.did += uint32(n)
		if p.n < ctxPasses {
			continue
		}
		if p.n = 0; p.count() < spinPasses {
			continue
		}
		if w := ws[0]; w.t.polling.sleeper.set != nil {
			w.t.polling.sleepBriefly(w.t.am.multi)
		} else {
			cpu.Yield()
		}
	}
	for i, w := range ws {
		err := rs[i].Err()
		if !rs[i].Done() {
			err = fmt.Errorf("close: %s: %w", rs[i], ErrTimeout)
		}
		w.t.lock() // another goroutine may close it meanwhile
		w.flushed, w.flushErr = true, err
		w.t.unlock()
	}
}

// closeEndpoints flushes all endpoints within CloseTimeout and ends them.
func (w *Worker) closeEndpoints() error {
	w.t.rejectUnmatched()
	var errs []error
	w.t.lock()
	flushed, err := w.flushed, w.flushErr
	w.t.unlock()
	if !flushed {
		_, err = w.t.flushAlive().waitBounded()
	}
	w.t.lock()
	// Operations that a peer did not accept are not an error of this side if the peer has
	// closed the connection in order. Lanes used for replies only, which just the flush
	// references, do not count: a peer that failed needs no replies.
	if !errors.Is(err, ErrPeerFailed) || slices.ContainsFunc(w.t.lanes, func(l lane) bool {
		return l.closeFlushed && l.refs > 1 && l.state == laneFailed && !errors.Is(l.err, errDisconnected)
	}) {
		errs = append(errs, err)
	}
	var owned []io.Closer
	for _, c := range w.t.cold {
		for o := range c.owned {
			owned = append(owned, o)
		}
	}
	w.t.unlock()
	for _, o := range owned {
		errs = append(errs, o.Close())
	}
	w.t.lock()
	defer w.t.unlock()
	w.t.endAll(ucs.Closed)
	for i := 1; i < len(w.t.lanes); i++ {
		if l := &w.t.lanes[i]; l.ep != nil {
			w.t.closeLane(uint32(i))
		}
	}
	for k := range w.t.eps {
		w.t.eps[k].gen++
		if w.t.eps[k].state != epFree {
			w.t.eps[k].enter(epFree)
		}
		w.t.eps[k].lane = 0
	}
	return errors.Join(errs...)
}

// endAll completes every live operation of the worker with st.
func (w *thread) endAll(st ucs.Status) {
	for i := range w.lanes {
		w.lanes[i].setSlow(slowNoCredit, false) // no lane is resumed
	}
	for _, wi := range w.ifaces {
		for _, rx := range wi.rxConns {
			rx.dropPartial(st)
		}
	}
	for i := uint32(1); int(i) < len(w.slab.Slots); i++ {
		s := &w.slab.Slots[i]
		if s.State != request.StateLive {
			continue
		}
		if s.Flags&request.FlagChild != 0 {
			// The parent completes in this loop as well, and must not
			// complete again with its child.
			w.clearPending(i)
			if s.Op == request.Flush {
				w.unlinkFlush(i)
			}
			w.slab.release(i)
			continue
		}
		if s.Op == request.TagRecv {
			w.matching.posted.Remove(i)
		}
		w.end(i, st)
	}
}
