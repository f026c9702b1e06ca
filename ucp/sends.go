package ucp

import "github.com/goucx/goucx/ucs"

// A send that is announced or synchronous holds one of its lane's credits from when it
// is sent until the peer has asked for the data or has matched it. So the peer holds at
// most UCX_RNDV_OUTSTANDING of them, whatever its program does.
//
// A send that finds no credit stalls its lane: the send, and all operations that were
// posted after it, wait in the halted endpoint, in order. If they did not, a fence or a
// flush would not cover the send. A send that waits for room holds no credit.
// Otherwise a send before it that needs one would stall the lane for ever.

// mayAnnounce reports whether the lane has a credit for the send that is next. Without
// one it stalls the lane. Where other operations wait for room, the send waits behind
// them and asks again.
func (w *Worker) mayAnnounce(lane uint32) bool {
	l := &w.t.lanes[lane]
	if l.used < w.outstanding {
		return true
	}
	if l.queued == 0 || w.resuming {
		l.starved = true
		w.haltLane(lane)
	}
	return false
}

// await notes that the send in slot i was sent and that the peer has to answer it. The
// send takes a credit, which it holds in the phases phaseMatch and phaseRTS.
func (w *Worker) await(i uint32, p phase) {
	s := &w.slab.slots[i]
	l := &w.t.lanes[s.lane]
	s.setPhase(p)
	w.slab.push(&l.open, i)
	l.used++
}

// giveCredit returns a credit of the lane.
func (w *Worker) giveCredit(lane uint32) {
	w.t.lanes[lane].used--
	w.feed(lane)
}

// feed resumes a lane that is stalled since a send needs a credit.
func (w *Worker) feed(lane uint32) {
	if l := &w.t.lanes[lane]; l.starved {
		l.starved = false
		w.swLift(lane)
	}
}

// leave takes the send in slot i, which ends, out of the queues it is in, and
// gives back what it holds.
func (w *Worker) leave(i uint32) {
	s := &w.slab.slots[i]
	if s.parent == 0 {
		return
	}
	lane, was := s.lane, s.phase()
	s.parent = 0
	if was == phaseLent {
		w.unlend(i)
	}
	if was != phaseNew {
		w.slab.unlink(&w.t.lanes[lane].open, i)
	}
	if was == phaseMatch || was == phaseRTS {
		w.giveCredit(lane)
	}
	if w.t.lanes[lane].flushes > 0 {
		w.letFlushesGo(lane)
	}
}

// letFlushesGo resumes the flushes in the lane's open queue that have nothing left
// before them.
//
//go:noinline
func (w *Worker) letFlushesGo(lane uint32) {
	for i := w.t.lanes[lane].open.head; i != 0; {
		s := &w.slab.slots[i]
		next := s.next
		if s.op == opFlush && s.arg == flushOpen && !w.precedes(lane, i) {
			s.arg = flushReady
			if st := w.try(i); st != ucs.InProgress {
				w.end(i, st)
			}
		}
		i = next
	}
}

// precedes reports whether something that flush i has to wait for is before it in the
// lane's open queue, or, where it is not in the queue, is there at all: a send, or a
// flush that was posted earlier, which must not end later.
func (w *Worker) precedes(lane, i uint32) bool {
	ep := w.slab.slots[i].ep
	for k := w.t.lanes[lane].open.head; k != i && k != 0; k = w.slab.slots[k].next {
		if ep == 0 || w.slab.slots[k].ep == ep {
			return true
		}
	}
	return false
}

// Where a flush stands, in slot.arg.
const (
	flushNew    = iota // what was posted before may wait for room
	flushOpen          // in lane.open, behind sends that are not matched
	flushReady         // in lane.open until the transport takes it
	flushPassed        // only the transport, and the owner's worker, are to end it
)

// leaveFlush takes the flush in slot i out of the lane's open queue, if it is there.
func (w *Worker) leaveFlush(i uint32) {
	s := &w.slab.slots[i]
	l := &w.t.lanes[s.lane]
	if s.arg == flushOpen || s.arg == flushReady {
		w.slab.unlink(&l.open, i)
		l.flushes--
		s.arg = flushPassed
	}
}

// endSends ends everything that waits in the lane's open queue for the peer.
func (w *Worker) endSends(lane uint32, st ucs.Status) {
	for {
		i := w.t.lanes[lane].open.head
		if i == 0 {
			return
		}
		if w.slab.slots[i].op == opFlush {
			w.leaveFlush(i)
		}
		w.end(i, st)
	}
}
