package ucp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup"
)

// Close flushes, for at most CloseTimeout, and then aborts the endpoint. Its
// remote keys are closed with it. The error says that operations did not get
// out. Other endpoints are not moved. Idempotent. A handler of an active message
// cannot wait for the flush: there the endpoint is closed when it has ended.
func (e Endpoint) Close() error {
	if e.t == nil {
		return nil
	}
	w := e.t.w
	e.t.lock()
	k := w.endpoint(e)
	alive := k != 0 && w.eps[k].status == ucs.OK
	e.t.unlock()
	if k == 0 {
		return nil
	}
	var err error
	if alive {
		r := e.Flush()
		if w.closesLater(r, e) {
			return nil
		}
		_, err = w.waitBounded(r)
		if errors.Is(err, ErrPeerFailed) && errors.Is(w.failureOf(e), errHungUp) {
			err = nil
		}
	}
	return errors.Join(err, e.shut(ErrClosed))
}

// failureOf gives why e fails, of which an operation has heard. Its transport may
// refuse before it reports.
func (w *Worker) failureOf(e Endpoint) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.ctx.closeTimeout)
	defer cancel()
	_ = w.WaitUntil(ctx, func() bool { return e.Info().Err != nil }) // else it has no reason
	return e.Info().Err
}

// Abort ends the endpoint now: its requests end with ErrCanceled, which wraps
// cause. What lies in the transport may still go out; a request whose memory a
// device is reading or writing ends when that has ended. A message that the peer's
// device reads is taken from it, and the connection fails at its side, unless other
// endpoints use the connection too. Idempotent.
func (e Endpoint) Abort(cause error) {
	if e.t == nil {
		return
	}
	err := ErrCanceled
	if cause != nil {
		err = fmt.Errorf("%w: %w", ErrCanceled, cause)
	}
	// Keys that cannot be closed now are closed with their domain.
	_ = e.shut(err)
}

// shut ends the requests of e with reason and frees it.
func (e Endpoint) shut(reason error) error {
	w := e.t.w
	var errs []error
	for _, c := range w.ownedBy(e) {
		errs = append(errs, c.Close())
	}
	e.t.lock()
	if k := w.endpoint(e); k != 0 {
		if w.eps[k].touched {
			w.abort(k, reason)
			w.detach(k)
		}
		w.freeEndpoint(k)
	}
	e.t.unlock()
	return errors.Join(append(errs, e.awaitFailed())...)
}

// ownedBy lists what is to be closed with e.
func (w *Worker) ownedBy(e Endpoint) (cs []io.Closer) {
	w.t.lock()
	defer w.t.unlock()
	if k := w.endpoint(e); k != 0 && w.cold[k] != nil {
		for c := range w.cold[k].owned {
			cs = append(cs, c)
		}
	}
	return cs
}

// own has c closed with endpoint k, unless disowned before.
func (w *Worker) own(k uint32, c io.Closer) {
	o := w.coldOf(k)
	if o.owned == nil {
		o.owned = make(map[io.Closer]struct{})
	}
	o.owned[c] = struct{}{}
}

func (w *Worker) disown(k uint32, c io.Closer) {
	if o := w.cold[k]; o != nil {
		delete(o.owned, c)
	}
}

// detach makes what was not read of endpoint k's operations independent of it.
func (w *Worker) detach(k uint32) {
	for i := uint32(1); int(i) < len(w.slab.slots); i++ {
		s := &w.slab.slots[i]
		if s.ep != k || s.state == slotFree {
			continue
		}
		if s.state != slotLive && s.status != ucs.OK {
			w.keepErr(i, w.slotErr(i))
			if s.flags&flagKept == 0 {
				w.slab.orphan(i)
			}
		}
		w.unwait(i)
		s = &w.slab.slots[i]
		if s.ep = 0; !s.lends() {
			s.lane = 0 // else it stays open until the peer has read
		}
	}
}

// freeEndpoint gives endpoint k's slot and lane back.
func (w *Worker) freeEndpoint(k uint32) {
	s := &w.eps[k]
	lane := s.lane
	if c := w.cold[k]; c != nil && lane == 0 {
		lane = c.lane
	}
	delete(w.cold, k)
	peer := s.peer
	*s = epSlot{gen: s.gen + 1, peer: wireup.PeerID(w.epFree)}
	w.epFree = k
	if lane != 0 {
		w.releaseLane(lane)
	}
	w.peers.Release(peer)
}

// flushBeforeClose flushes workers that may wait for each other, within limit.
func flushBeforeClose(ws []*Worker, timeout time.Duration) {
	rs := make([]Request, len(ws))
	for i, w := range ws {
		w.refuseUnmatched()
		rs[i] = w.flushAlive()
	}
	var p pause
	limit := ucs.Now().Add(timeout)
	for slices.ContainsFunc(rs, func(r Request) bool { return !r.Done() }) && ucs.Now().Before(limit) {
		n := 0
		for _, w := range ws {
			n += w.Progress()
		}
		p.among(ws, n)
	}
	for i, w := range ws {
		err := rs[i].Err()
		if !rs[i].Done() {
			err = fmt.Errorf("close: %s: %w", rs[i], ErrTimeout)
		}
		w.t.lock() // others may close it meanwhile
		w.flushed, w.flushErr = true, err
		w.t.unlock()
	}
}

// closeEndpoints flushes them all within CloseTimeout and ends them.
func (w *Worker) closeEndpoints() error {
	w.refuseUnmatched()
	var errs []error
	w.t.lock()
	flushed, err := w.flushed, w.flushErr
	w.t.unlock()
	if !flushed {
		_, err = w.waitBounded(w.flushAlive())
	}
	w.t.lock()
	if !errors.Is(err, ErrPeerFailed) || !w.leftInOrder() {
		errs = append(errs, err)
	}
	var owned []io.Closer
	for _, c := range w.cold {
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
	w.endAll(ucs.Closed)
	for i := 1; i < len(w.t.lanes); i++ {
		if l := &w.t.lanes[i]; l.ep != nil {
			w.closeLane(uint32(i))
		}
	}
	for k := range w.eps {
		w.eps[k].gen++
		w.eps[k].lane, w.eps[k].inUse = 0, false
	}
	return errors.Join(errs...)
}

// leftInOrder reports whether all peers that failed since closeEndpoints closed their
// end: what they did not take then is not lost by us. Lanes for replies alone, which
// only the flush holds, do not count: a peer that failed wants no replies.
func (w *Worker) leftInOrder() bool {
	return !slices.ContainsFunc(w.t.lanes, func(l lane) bool {
		return l.closes && l.refs > 1 && l.status != ucs.OK && !errors.Is(l.err, errHungUp)
	})
}

// endAll ends every operation of the worker that has not ended.
func (w *Worker) endAll(st ucs.Status) {
	for i := range w.t.lanes {
		w.t.lanes[i].starved = false // no lane is to be resumed
	}
	for _, p := range w.ports {
		for _, s := range p.sources {
			w.drop(s, st)
		}
	}
	for i := uint32(1); int(i) < len(w.slab.slots); i++ {
		s := &w.slab.slots[i]
		if s.state != slotLive {
			continue
		}
		if s.flags&flagChild != 0 {
			// Its parent ends here, and must not end again with it.
			w.unwait(i)
			if s.op == opFlush {
				w.leaveFlush(i)
			}
			w.slab.release(i)
			continue
		}
		if s.op == opTagRecv {
			w.posted.Remove(i)
		}
		w.end(i, st)
	}
}
