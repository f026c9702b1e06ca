package ucp

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
)

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
		return l.closeFlushed && l.refs > 1 && l.state == laneFailed && !errors.Is(l.err, ErrPeerClosed)
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
	for i := range w.t.slab.Slots {
		s := &w.t.slab.Slots[i]
		if s.State != request.StateLive || s.Op != request.RndvRead || !request.As[readOp](s).fetches {
			continue
		}
		rx := w.t.rxConns[request.As[recvOp](&w.t.slab.Slots[uint32(request.As[readOp](s).receive)]).rx]
		if rx.iface.fetcher.CancelFetch(w.t.slab.Token(uint32(i)), true) != ucs.OK {
			errs = append(errs, fmt.Errorf("close: a stopped peer may still write to the buffer of a receive: %w", ErrBufferExposed))
			w.t.end(uint32(i), ucs.BufferExposed)
		}
	}
	w.t.endAll(ucs.Closed)
	for i := 1; i < len(w.t.lanes); i++ {
		if l := &w.t.lanes[i]; l.ep != nil {
			w.t.closeLane(uint32(i))
		}
	}
	w.t.publish.lock()
	defer w.t.publish.unlock()
	for k := range w.t.eps {
		w.t.eps[k].gen++
		if w.t.eps[k].state != epFree {
			w.t.enterEndpoint(uint32(k), epFree)
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
			rx.dropPartial(st, nil)
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
