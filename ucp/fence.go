package ucp

import (
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// Fences.
//
// A fence must order all operations that the endpoint posted before it against all that
// it posts after it. There are three cases:
//
//   - The peer has one lane and no emulated operation is outstanding: the transport's Fence
//     suffices.
//   - The peer has one lane, which mixes emulated operations with operations of the
//     transport. The owner's worker carries out the former in its progress, so the latter
//     could overtake them. The lane is stalled until the owner has acknowledged them.
//   - The peer has several lanes, which have no order among each other. All of them are
//     stalled until every lane has flushed what was posted before (fenceMulti).
//
// A fence behind pending operations waits in the pending queue itself. A lane that is
// opened after a fence obeys it too: openLane fences it together with the older lanes.

// fenceOp is the slot of a fence, or of its part on a lane.
type fenceOp struct {
	request.Header
	synced uint32 // of a part: 1 once it has requested the acknowledgment of the emulated operations before it
	_      uint32
	parent uint32        // of a part: the slot of the fence
	peer   wireup.PeerID // of a fence over several lanes
	_      [24]byte
}

// Fence orders the endpoint's operations before it against those after it. It never
// blocks.
func (e Endpoint) Fence() {
	w := e.thread()
	w.lock()
	if k := w.endpoint(e); k != 0 {
		if i := w.laneOf[w.eps[k].peer]; i != 0 {
			w.fencePeer(k, i)
		}
	}
	w.unlock()
}

// Fence orders the operations of each endpoint before it against those after it.
func (w *Worker) Fence() {
	w.t.lock()
	for i := 1; i < len(w.t.lanes); i++ {
		if l := &w.t.lanes[i]; l.first == uint32(i) && l.state != laneFailed {
			w.t.fencePeer(0, uint32(i))
		}
	}
	w.t.unlock()
}

// fencePeer fences the lanes to a peer, of which i is the first.
func (w *thread) fencePeer(ep, i uint32) {
	l := &w.lanes[i]
	if l.next != 0 {
		w.fenceMulti(l.peer)
		return
	}
	l.fenced = true
	if l.quiet() && l.ep.Fence() == ucs.OK {
		return
	}
	f := w.slab.Alloc(request.Fence)
	s := request.As[fenceOp](&w.slab.Slots[f])
	s.EP, s.Lane = ep, i
	s.Flags = request.FlagReported // the operations after it report the failure
	if st := w.try(f); st != ucs.InProgress {
		w.endSlow(f, st)
	}
}

var fenceOperation = operation{progress: (*thread).resumeFence, complete: (*thread).fenceEnded}

// fenceEnded counts a part with its fence.
func (w *thread) fenceEnded(i uint32, _ ucs.Status) bool {
	s := request.As[fenceOp](&w.slab.Slots[i])
	if s.Flags&request.FlagChild == 0 {
		return false
	}
	f := s.parent
	w.slab.release(i)
	w.fencePartDone(f)
	return true
}

// resumeFence posts a fence on its lane. A part of a fence over several lanes starts the
// flush of its lane.
func (w *thread) resumeFence(i uint32) ucs.Status {
	part := request.As[fenceOp](&w.slab.Slots[i])
	lane, f := part.Lane, part.parent
	l := &w.lanes[lane]
	if st := l.checkOrder(w.resuming); st != ucs.OK {
		return st
	}
	if part.Flags&request.FlagChild == 0 {
		if st := l.ep.Fence(); st != ucs.OK || !l.emul.canOvertake() {
			return st
		}
		// The device of the peer must not overtake emulated operations, which the
		// peer's worker carries out.
		if st := l.emul.sync(0); st != ucs.InProgress {
			return st
		}
		l.emul.stallUntil = l.emul.sent
		w.stallLane(lane)
		return ucs.OK
	}

	if st := l.ep.Fence(); st != ucs.OK {
		return st
	}
	if l.emul != nil && l.emul.handled < l.emul.sent && part.synced == 0 {
		ack := w.slab.fencePart(f, lane) // it completes with the acknowledgment
		if st := l.emul.sync(w.slab.Token(ack)); st != ucs.InProgress {
			w.slab.release(ack)
			w.slab.Slots[f].Parts--
			return st
		}
		request.As[fenceOp](&w.slab.Slots[i]).synced = 1
	}
	st := l.ep.Flush(uct.FlushRemote, w.slab.Token(i))
	if st != ucs.OK && st != ucs.InProgress {
		return st
	}
	if l.emul.canOvertake() {
		l.emul.stallUntil = l.emul.sent
		w.stallLane(lane)
	}
	if w.slab.Slots[i].Flags&request.FlagPending != 0 && w.slab.Slots[f].Parts > 1 {
		w.emulLane(lane).fence = f // fenceMulti has returned already and stalled the other lanes
		w.stallLane(lane)
	}
	return st
}

// canOvertake reports whether operations of the transport could overtake outstanding
// emulated operations.
func (e *emulEndpoint) canOvertake() bool { return e != nil && e.hasRMA && e.handled < e.sent }

// fenceMulti fences several lanes to a peer, which have no order among each other.
// Operations posted after it wait, on every lane, until those posted before it have
// taken effect.
//
// Its slot counts the parts that have not completed. A part is the flush of a lane,
// posted at the place of the fence among the lane's operations.
func (w *thread) fenceMulti(peer wireup.PeerID) {
	f := w.slab.Alloc(request.FenceMulti)
	s := request.As[fenceOp](&w.slab.Slots[f])
	s.Flags, s.peer, s.Parts = request.FlagReported, peer, 1
	w.fences++
	w.fenced = w.fenced[:0]
	for i := w.laneOf[peer]; i != 0; i = w.lanes[i].next {
		if w.lanes[i].state == laneFailed {
			continue
		}
		w.lanes[i].fenced = true
		part := w.slab.fencePart(f, i)
		switch st := w.try(part); {
		case st != ucs.InProgress:
			w.end(part, st)
			w.fenced = append(w.fenced, i)
		case w.slab.Slots[part].Flags&request.FlagPending == 0:
			w.fenced = append(w.fenced, i)
		}
	}
	if w.slab.Slots[f].Parts > 1 {
		for _, i := range w.fenced {
			w.emulLane(i).fence = f
			w.stallLane(i)
		}
	}
	w.fencePartDone(f)
}

// fencePart returns the slot of a new part of f on the lane.
func (b *slab) fencePart(f, lane uint32) uint32 {
	i := b.Alloc(request.Fence)
	s := request.As[fenceOp](&b.Slots[i])
	s.Lane, s.parent = lane, f
	s.Flags = request.FlagChild | request.FlagReported
	b.Slots[f].Parts++
	return i
}

// fencePartDone counts a completed part of f. The last one resumes all lanes.
func (w *thread) fencePartDone(f uint32) {
	s := request.As[fenceOp](&w.slab.Slots[f])
	if s.Parts--; s.Parts > 0 {
		return
	}
	peer := s.peer
	w.slab.release(f)
	w.fences--
	var some [16]uint32
	stalled := some[:0]
	for i := w.laneOf[peer]; i != 0; i = w.lanes[i].next {
		if e := w.lanes[i].emul; e != nil && e.fence == f {
			e.fence = 0
			stalled = append(stalled, i)
		}
	}
	for _, i := range stalled {
		w.tryResumeLane(i)
	}
}
