package ucp

import (
	"errors"
	"slices"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Flushes.
//
// A flush has one part per lane. A part takes its place among the lane's operations and
// completes when all three hold:
//
//   - the owner has acknowledged the emulated operations posted before it;
//   - the sends before it in lane.unacked have been matched or transferred;
//   - the transport's flush has completed.
//
// Invariant: a part never overtakes an operation posted before it, and operations posted
// after it never delay it. This needs care in four places:
//
//   - A transport's flush does not cover pending queues. So a part does not start while
//     operations are pending (checkOrder) or the lane is stalled. It becomes pending behind
//     them.
//   - Lane failover moves pending operations and flushes in their order. Nothing
//     was sent on the old connection, so no part is in its transport.
//   - A lane that fails completes every part with its error: those in lane.unacked, those in
//     the pending queue (failLane), and those in the transport when it reports them.
//   - A lane that closes has no endpoint and no key. Its parts have nothing to wait for, and
//     complete with the status of the lane (closeLane).
//
// flushOp.stage is the state of a part: flushNew, flushBehindSends, flushReady,
// flushInTransport (lane_credit.go). It only advances.

// Flush completes when all operations posted before on this endpoint have completed and
// have taken effect in the peer's memory. An eager message counts when the peer has
// accepted it, not when the peer's program receives it. Flush includes operations that
// wait for resources, sync sends and rendezvous messages that wait for a receive.
//
//hot:bench BenchmarkFlush
func (e Endpoint) Flush() Request {
	st := ucs.NoResource
	if l := e.lane(); l.numPeerLanes == 1 && l.quiet() && e.t.unreportedRefusals == 0 {
		if st = l.ep.Flush(uct.FlushRemote, e.t.slab.NextToken()); st == ucs.OK {
			return Request{}
		}
	}
	return e.flushSlow(st)
}

// flushSlow is Flush in all cases. st is what the flush of the transport has returned, which got
// the next token of the slab. NoResource: it was not called, or did not begin.
//
//go:noinline
func (e Endpoint) flushSlow(st ucs.Status) Request {
	w := e.thread()
	w.lock()
	defer w.unlock()
	k := w.endpoint(e)
	if k == 0 {
		return w.refuse(request.Flush, e, ucs.Closed)
	}
	switch s := &w.eps[k]; {
	case s.status != ucs.OK && !w.flushable(k):
		return w.refuse(request.Flush, e, s.status)
	case s.lane == 0 && s.state != epFailed:
		return Request{} // no operation was posted on it
	}
	f := flush{w: w, ep: k}
	for i := w.laneOf[w.eps[k].peer]; i != 0; i = w.lanes[i].next {
		f.addLane(i, st)
	}
	f.addRefusals(e.id)
	return f.request()
}

// Flush flushes all endpoints. The failure of an endpoint is reported by its error. An
// endpoint that is closed or aborted meanwhile is not a failure; the flush completes
// without it.
func (w *Worker) Flush() Request {
	w.t.lock()
	defer w.t.unlock()
	if w.t.life.closing() {
		return w.t.refuse(request.Flush, Endpoint{}, ucs.Closed)
	}
	f := flush{w: &w.t}
	for i := 1; i < len(w.t.lanes); i++ {
		l := &w.t.lanes[i]
		if l.ep != nil && !l.drainsPending() && !(l.state == laneFailed && w.t.coversAcked(uint32(i), 0)) {
			f.addLane(uint32(i), ucs.NoResource)
		}
	}
	f.addRefusals(0)
	return f.request()
}

// flushAlive flushes the lanes that have not failed, because the worker closes.
func (w *thread) flushAlive() Request {
	w.lock()
	defer w.unlock()
	f := flush{w: w}
	for i := 1; i < len(w.lanes); i++ {
		if l := &w.lanes[i]; l.ep != nil && l.state != laneFailed && !l.drainsPending() {
			l.closeFlushed = true
			w.retainLane(uint32(i)) // otherwise a lane for replies only closes when its peer does, and cancels the flush
			f.addLane(uint32(i), ucs.NoResource)
		}
	}
	return f.request()
}

// flushOp is the slot of a flush, or of its part on a lane.
type flushOp struct {
	request.Header
	stage  flushStage
	_      uint32 // the link in lane.unacked
	parent uint32 // of a part: the slot of the flush
	_      [28]byte
}

// flush collects the flushes of several lanes in one request. The request is created
// only if one of them does not complete immediately.
type flush struct {
	w      *thread
	ep     uint32
	parent uint32
}

// addLane adds lane i. Its part completes at once if nothing is in progress on the lane.
// Otherwise the first such part creates the request, which counts its parts. st is as in flushSlow.
func (f *flush) addLane(i uint32, st ucs.Status) {
	w := f.w
	c := w.slab.Alloc(request.Flush)
	s := request.As[flushOp](&w.slab.Slots[c])
	s.EP, s.Lane, s.stage, s.Parts = f.ep, i, flushInTransport, 1
	if st == ucs.NoResource {
		s.stage = flushNew
		if st = w.try(c); st == ucs.OK {
			w.slab.release(c)
			return
		}
	}
	if f.parent == 0 {
		f.parent = w.slab.Alloc(request.Flush)
		w.slab.Slots[f.parent].EP = f.ep
	}
	w.slab.Slots[f.parent].Parts++
	s = request.As[flushOp](&w.slab.Slots[c])
	s.parent = f.parent
	s.Flags |= request.FlagChild
	if st == ucs.PeerFailed && w.mustAwaitReport(c) {
		return
	}
	if st != ucs.InProgress {
		s.Status = st
		w.slab.Slots[f.parent].Parts++ // so that request completes it, not childEnded: its id is not known before
		w.childEnded(c)
		w.slab.Slots[f.parent].Parts--
	}
}

// request returns the request of the flush, which completes with its last part. It is the zero
// Request if all parts have completed without an error.
func (f *flush) request() Request {
	if f.parent == 0 {
		return Request{}
	}
	w := f.w
	r := Request{w, w.slab.ID(f.parent)}
	if s := &w.slab.Slots[f.parent]; s.Parts == 0 {
		w.end(f.parent, s.Status)
	}
	return r
}

var flushOperation = operation{progress: (*thread).resumeFlush}

// resumeFlush starts the flush of a lane at its place among the lane's operations. It
// requests the acknowledgment of earlier emulated operations, and flushes the transport
// once all earlier sends have been matched. slot.parts counts the two. Operations posted
// later do not delay it.
func (w *thread) resumeFlush(i uint32) ucs.Status {
	s := request.As[flushOp](&w.slab.Slots[i])
	l := &w.lanes[s.Lane]
	if s.stage == flushNew {
		if st := l.checkOrder(w.resuming); st != ucs.OK {
			return st
		}
		if h := l.stalledEp(); h != nil && !h.resuming {
			return ucs.NoResource
		}
		// From here on the part has its place: what is posted later does not delay it.
		s.Parts = 1
		switch {
		case l.emul == nil:
		case l.emul.posted > l.emul.flushed || l.emul.handled < l.emul.sent: // no completed flush covers them
			if st := l.emul.sync(w.slab.Token(i)); st != ucs.InProgress {
				return st
			}
			s.Parts = 2
		default:
			if st := l.emul.takeErr(); st != ucs.OK {
				return st
			}
		}
		if s.stage = flushInTransport; w.slab.precedes(l.unacked, i) {
			s.stage = flushBehindSends
			w.slab.Push(&l.unacked, i)
			l.flushes++
			return ucs.InProgress
		}
	}
	// All sends before it are acknowledged. A stalled lane does not hold the part back, because
	// it has had its place already (bypassesStall).
	st := l.status()
	if st == ucs.OK {
		st = l.transport().Flush(uct.FlushRemote, w.slab.Token(i))
	}
	switch {
	case st == ucs.NoResource:
		return st
	case s.stage == flushReady:
		w.unlinkFlush(i)
		if s.Flags&request.FlagPending != 0 {
			w.resumeFlushes(s.Lane) // they wait for this one
			s = request.As[flushOp](&w.slab.Slots[i])
		}
	}
	if st != ucs.OK {
		return st
	}
	if s.Parts--; s.Parts > 0 {
		return ucs.InProgress
	}
	return s.Status
}

// A transfer refused when it is posted, for its bounds or a missing right, never began, so
// no flush covers it. But a program that drops the request and flushes must not see
// success. So a flush reports the refusal, once, unless a caller has read it.
//
// thread.unreportedRefusals is an upper bound of the refusals that are neither read nor
// reported. At 0 a flush skips the search.

// refusedOp is the slot of a refused transfer, which has formRefused.
type refusedOp struct {
	_        request.Header
	form     rmaForm
	_        uint32
	endpoint uint64 // id of the endpoint
	_        [24]byte
}

// checkOrder returns OK if a flush or fence of the lane would cover all operations before
// it. It would not cover pending ones: then checkOrder returns NoResource, so that the
// flush becomes pending behind them.
func (l *lane) checkOrder(resuming bool) ucs.Status {
	switch {
	case l.state == laneFailed:
		return l.status()
	case l.pending > 0 && !resuming:
		return ucs.NoResource
	default:
		return ucs.OK
	}
}

// addRefusals makes the flush fail with the first unread refusal of the endpoint with this id,
// or of any endpoint if id is 0. It marks all of them as read.
func (f *flush) addRefusals(id uint64) {
	w := f.w
	if w.unreportedRefusals == 0 {
		return
	}
	w.unreportedRefusals = 0
	b := &w.slab
	i := uint32(0)
	for k := b.Unclaimed; k != 0; k = b.Slots[k].Next {
		s := &b.Slots[k]
		switch {
		case s.Op < request.Put || s.Op > request.Fetch || request.As[refusedOp](s).form&formRefused == 0 || s.State != request.StateDone:
		case id != 0 && request.As[refusedOp](s).endpoint != id:
			w.unreportedRefusals++
		default:
			s.State = request.StateRead
			if i == 0 {
				i = k
			}
		}
	}
	if i == 0 {
		return
	}
	err := w.slotErr(i)
	if f.parent == 0 {
		f.parent = w.slab.Alloc(request.Flush)
		w.slab.Slots[f.parent].EP = f.ep
	}
	if s := &w.slab.Slots[f.parent]; s.Status == ucs.OK {
		s.Status = ucs.InvalidParam
		w.slab.saveErr(f.parent, err)
	}
}

// flushStage is the state of a flush.
type flushStage uint32

const (
	flushNew         flushStage = iota // operations posted before may wait for resources
	flushBehindSends                   // in lane.unacked, behind sends that the peer has not acknowledged
	flushReady                         // in lane.unacked until the transport accepts it
	flushInTransport                   // waits only for the transport, and for the owner's worker if operations are emulated
)

// resumeFlushes resumes the flushes in lane.unacked that have no operation
// before them any more.
//
//go:noinline
func (w *thread) resumeFlushes(lane uint32) {
	for i := w.lanes[lane].unacked.Head; i != 0; {
		s := &w.slab.Slots[i]
		next := s.Next
		if f := request.As[flushOp](s); s.Op == request.Flush && f.stage == flushBehindSends && !w.slab.precedes(w.lanes[lane].unacked, i) {
			f.stage = flushReady
			if st := w.try(i); st != ucs.InProgress {
				w.end(i, st)
			}
		}
		i = next
	}
}

// precedes reports whether an operation that flush i has to wait for is before it in
// lane.unacked. If the flush is not in the queue, it looks at the whole queue. It waits for
// sends, and for flushes posted earlier, which must not complete later.
func (b *slab) precedes(unacked request.Chain, i uint32) bool {
	ep := b.Slots[i].EP
	for k := unacked.Head; k != i && k != 0; k = b.Slots[k].Next {
		if ep == 0 || b.Slots[k].EP == ep {
			return true
		}
	}
	return false
}

// unlinkFlush removes the flush in slot i from lane.unacked if it is there.
func (w *thread) unlinkFlush(i uint32) {
	s := request.As[flushOp](&w.slab.Slots[i])
	l := &w.lanes[s.Lane]
	if s.stage == flushBehindSends || s.stage == flushReady {
		w.slab.Unlink(&l.unacked, i)
		l.flushes--
		s.stage = flushInTransport
	}
}

// completeUnacked completes all operations in lane.unacked with st.
func (w *thread) completeUnacked(lane uint32, st ucs.Status) {
	for {
		i := w.lanes[lane].unacked.Head
		if i == 0 {
			return
		}
		if w.slab.Slots[i].Op == request.Flush {
			w.unlinkFlush(i)
		}
		w.end(i, w.flushStatus(i, st))
	}
}

// A flush succeeds although the lane has failed, if the peer has closed in order and had acknowledged
// before all that the flush covers. So a program that ends its work, and then flushes, gets no error
// from a peer that has left in the meantime.
//
// epSlot.lost holds what makes it fail: an operation of the endpoint that was in progress when the
// lane failed, or that was posted later; an operation of the lane that the transport had accepted
// without an acknowledgement, whatever endpoint it was of. Operations in thread.unreported are in
// the order of posting, so those behind a flush do not fail it.

// loses reports whether an operation of endpoint k on lane i, which has failed, has no
// acknowledgement. Those in thread.unreported do not count.
func (w *thread) loses(k, i uint32) bool {
	l := &w.lanes[i]
	if !l.acked || l.emul != nil && (l.emul.posted > l.emul.flushed || l.emul.handled < l.emul.sent) {
		return true
	}
	for n := range w.slab.Slots {
		s := &w.slab.Slots[n]
		if s.State == request.StateLive && s.EP == k && s.Lane == i && s.Op != request.Flush && s.Op != request.Fence &&
			!slices.Contains(w.unreported, w.slab.ID(uint32(n))) {
			return true
		}
	}
	return false
}

// flushable reports whether a flush of endpoint k succeeds although the endpoint has failed.
func (w *thread) flushable(k uint32) bool {
	c := w.cold[k]
	return w.eps[k].state == epFailed && !w.eps[k].lost && c != nil && errors.Is(c.err, ErrPeerClosed)
}

// coversAcked reports whether a flush of endpoint k covers nothing on lane i, which has failed, that
// is not acknowledged. k 0: of all endpoints.
func (w *thread) coversAcked(i, k uint32) bool {
	l := &w.lanes[i]
	if !errors.Is(l.err, ErrPeerClosed) {
		return false
	}
	if k != 0 {
		return w.flushable(k) || w.eps[k].state == epActive && l.acked
	}
	failed := false
	for o := range w.eps {
		if s := &w.eps[o]; s.state == epFailed && s.peer == l.peer {
			if failed = true; !w.flushable(uint32(o)) {
				return false
			}
		}
	}
	return failed || l.acked
}

// flushStatus returns the status with which the operation in slot i completes that would complete
// with st: OK if it is a flush that covers only acknowledged operations.
func (w *thread) flushStatus(i uint32, st ucs.Status) ucs.Status {
	s := &w.slab.Slots[i]
	if st == ucs.PeerFailed && s.Op == request.Flush && w.lanes[s.Lane].state == laneFailed && w.coversAcked(s.Lane, s.EP) {
		return ucs.OK
	}
	return st
}
