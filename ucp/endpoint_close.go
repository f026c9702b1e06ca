package ucp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
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
		return e.closeNow(ErrClosed, nil)
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
		if errors.Is(e.Info().Err, ErrPeerClosed) {
			err = nil
		}
	}
	return errors.Join(err, e.closeNow(ErrClosed, nil))
}

// Abort closes the endpoint immediately. Its requests complete with ErrCanceled, which
// wraps cause. Data already passed to the transport may still be transmitted. A request
// whose memory a device is reading or writing completes when the device has finished.
//
// The peer is notified, with the first 200 bytes of cause's text, as far as the connection permits.
// Its receives that wait for a message sent on the endpoint complete with ErrPeerFailed and the
// text. If this was the last endpoint to the peer's worker, the peer's endpoints to this worker fail
// with them. Otherwise they go on. An [AM].From that is open counts as an endpoint. A message that the peer's device reads is withdrawn if no other
// endpoint uses the connection. Abort is idempotent.
func (e Endpoint) Abort(cause error) {
	if e.t == nil {
		return
	}
	err := ErrCanceled
	if cause != nil {
		err = fmt.Errorf("%w: %w", ErrCanceled, cause)
	}
	// Keys that cannot be closed now are closed with their domain.
	_ = e.closeNow(err, newAbortNotice(cause))
}

// closeNow completes the requests of e with reason and frees it. notice is for the peer, if that can read it; nil: it
// receives none.
func (e Endpoint) closeNow(reason error, notice *abortNotice) error {
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
		if w.peers.Features(w.eps[k].peer)&wireup.FeatureAbort == 0 {
			notice = nil // the peer gets the cancels of before
		}
		hasSent := func(rx *rxConn) bool { return rx != nil && rx.peer == w.eps[k].peer }
		if notice != nil && w.eps[k].state == epIdle && slices.ContainsFunc(w.rxConns, hasSent) {
			_ = w.connect(k) // the peer may wait for this endpoint
		}
		if w.eps[k].state != epIdle {
			w.abort(k, reason, notice)
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
		s.Flags &^= request.FlagTied // without an endpoint it would be tied to all
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
	w.enterEndpoint(k, epFree)
	w.releaseEpSlot(k)
	if lane != 0 {
		w.releaseLane(lane)
	}
}
