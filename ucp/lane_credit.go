package ucp

import (
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
)

// Send credits: a synchronous send, and a send by rendezvous, holds one credit of its lane.
// It holds the credit from when it is sent until the peer has matched or requested it. So
// the peer holds at most UCX_RNDV_OUTSTANDING of them, whatever its program does.
//
// A send that finds no credit stalls its lane: the send, and all operations that are posted
// after it, wait in the stalled endpoint, in order. Otherwise a fence or a flush would not
// cover the send. A send that waits for resources holds no credit. Otherwise a send before
// it that needs one would stall the lane for ever.
//
// Invariants: lane.creditsUsed is the number of sends in lane.unacked in the phases phaseMatch
// and phaseRTS. lane.unacked has the sends in their order, each flush behind the sends
// that it covers. A flush calls the transport only when no send that it covers is
// before it in lane.unacked.

// checkCredit reports whether the lane has a credit for the next send. Without one it
// stalls the lane. If other operations wait for resources, the send waits behind them and
// tries again later.
func (w *thread) checkCredit(lane uint32) bool {
	l := &w.lanes[lane]
	if l.creditsUsed < w.maxCredits {
		return true
	}
	if l.pending == 0 || w.resuming {
		l.setSlow(slowNoCredit, true)
		w.stallLane(lane)
	}
	return false
}

// awaitAck notes that the send in slot i was sent and that the peer has to acknowledge it. The
// send takes a credit, which it holds in the phases phaseMatch and phaseRTS.
func (w *thread) awaitAck(i uint32, p phase) {
	s := request.As[sendOp](&w.slab.Slots[i])
	l := &w.lanes[s.Lane]
	s.phase = p
	w.slab.Push(&l.unacked, i)
	l.creditsUsed++
}

// returnCredit returns a credit to the lane.
func (w *thread) returnCredit(lane uint32) {
	w.lanes[lane].creditsUsed--
	w.resumeOnCredit(lane)
}

// resumeOnCredit resumes a lane that is stalled because a send needs a credit.
func (w *thread) resumeOnCredit(lane uint32) {
	if l := &w.lanes[lane]; l.is(slowNoCredit) {
		l.setSlow(slowNoCredit, false)
		w.tryResumeLane(lane)
	}
}

// releaseSend removes the send in slot i, which is about to complete, from lane.unacked and releases
// its credit and its exposed memory.
func (w *thread) releaseSend(i uint32) {
	s := request.As[sendOp](&w.slab.Slots[i])
	lane, was := s.Lane, s.phase
	if was == phaseNew {
		return
	}
	s.phase = phaseNew
	if was == phaseExposed {
		w.lanes[lane].unuse()
	}
	w.slab.detachMem(i)
	w.slab.Unlink(&w.lanes[lane].unacked, i)
	if was == phaseMatch || was == phaseRTS {
		w.returnCredit(lane)
	}
	if w.lanes[lane].flushes > 0 {
		w.resumeFlushes(lane)
	}
}

// sendCompleted is releaseSend for a send that completes otherwise than at its start.
func (w *thread) sendCompleted(i uint32, _ ucs.Status) bool {
	w.releaseSend(i)
	return false
}
