package ucp

import "github.com/goucx/goucx/ucs"

// Each send that does not end at its call holds one of its lane's credits until
// it has gone out, or was asked for. So a peer never holds more announcements of
// ours than there are credits, whatever it does. Without a credit sends wait in
// lane.held, in their order, and everything after them does too.

// startSend begins the send in slot i, which was taken and filled in.
func (w *Worker) startSend(i uint32) Request {
	s := &w.slab.slots[i]
	l := &w.t.lanes[s.lane]
	if l.held.head == 0 && l.used < w.outstanding {
		l.used++
		s.parent |= wishCredit
		return w.start(i)
	}
	s.setPhase(phaseHeld)
	w.slab.push(&l.held, i)
	w.gate(s.lane)
	return Request{&w.t, w.slab.id(i)}
}

// giveCredit gives the credit of the send in slot i back.
func (w *Worker) giveCredit(i uint32) {
	s := &w.slab.slots[i]
	if s.parent&wishCredit == 0 {
		return
	}
	s.parent &^= wishCredit
	l := &w.t.lanes[s.lane]
	l.used--
	if l.held.head != 0 {
		w.admit(s.lane)
	}
}

// admit lets sends go that waited for credits.
//
//go:noinline
func (w *Worker) admit(lane uint32) {
	l := &w.t.lanes[lane]
	if l.admitting || l.status != ucs.OK {
		return
	}
	l.admitting = true
	for l.held.head != 0 {
		i := l.held.head
		s := &w.slab.slots[i]
		if s.op.sends() && l.used >= w.outstanding {
			break
		}
		if s.op.sends() {
			w.slab.unlink(&l.held, i)
			l.used++
			s.setPhase(phaseNew)
			s.parent |= wishCredit
		} else {
			w.leaveFlush(i)
		}
		if st := w.tryInTurn(i); st != ucs.InProgress {
			w.end(i, st)
		}
		l = &w.t.lanes[lane]
	}
	l.admitting = false
	w.gate(lane)
}

// tryInTurn is try of what may become possible while the lane's queue is served:
// the transport takes everything then, but it must not overtake what is queued.
func (w *Worker) tryInTurn(i uint32) ucs.Status {
	s := &w.slab.slots[i]
	l := &w.t.lanes[s.lane]
	if w.resuming && l.queued > 0 && l.ep.PendingAdd(w.slab.token(i)) == ucs.OK {
		s.flags |= flagWaiting
		l.queued++
		return ucs.InProgress
	}
	return w.try(i)
}

// leave takes the send in slot i, which ends, out of the queues it is in, and
// gives back what it holds.
func (w *Worker) leave(i uint32) {
	s := &w.slab.slots[i]
	if s.parent == 0 {
		return
	}
	l := &w.t.lanes[s.lane]
	switch s.phase() {
	case phaseHeld:
		w.slab.unlink(&l.held, i)
		s.setPhase(phaseNew)
		w.admit(s.lane) // a flush may be the next
		s = &w.slab.slots[i]
	case phaseLent:
		w.unlend(i)
		w.slab.unlink(&l.open, i)
	case phaseMatch, phaseRTS, phaseData:
		w.slab.unlink(&l.open, i)
	default:
	}
	s.setPhase(phaseNew)
	w.giveCredit(i)
	if l = &w.t.lanes[s.lane]; l.flushes > 0 {
		w.letFlushesGo(s.lane)
	}
	w.slab.slots[i].parent = 0
}

// letFlushesGo has the flushes in the lane's open queue go on that have no send
// of their endpoint before them.
//
//go:noinline
func (w *Worker) letFlushesGo(lane uint32) {
	for i := w.t.lanes[lane].open.head; i != 0; {
		s := &w.slab.slots[i]
		next := s.next
		if s.op == opFlush && !w.precedes(lane, i) {
			w.leaveFlush(i)
			if st := w.tryInTurn(i); st != ucs.InProgress {
				w.end(i, st)
			}
		}
		i = next
	}
}

// precedes reports whether a send that flush i has to wait for is before it, or,
// where it is not in the queue, is there at all.
func (w *Worker) precedes(lane, i uint32) bool {
	ep := w.slab.slots[i].ep
	for k := w.t.lanes[lane].open.head; k != i && k != 0; k = w.slab.slots[k].next {
		if s := &w.slab.slots[k]; s.op.sends() && (ep == 0 || s.ep == ep) {
			return true
		}
	}
	return false
}

// Where a flush stands, in slot.arg.
const (
	flushNew      = iota
	flushHeld     // in lane.held
	flushAdmitted // it was
	flushOpen     // in lane.open
	flushPassed   // it was: nothing before it is unmatched
)

// waitsForSends puts the flush in slot i behind the sends it has to wait for;
// false where there is none.
func (w *Worker) waitsForSends(i uint32, l *lane) bool {
	s := &w.slab.slots[i]
	if s.arg == flushNew {
		if l.held.head != 0 {
			s.arg = flushHeld
			w.slab.push(&l.held, i)
			return true
		}
		s.arg = flushAdmitted
	}
	// Sends that wait for room are not in the queue yet: the flush waits behind
	// them first.
	if s.arg != flushPassed && (l.queued == 0 || w.resuming) && w.precedes(s.lane, i) {
		s.arg = flushOpen
		w.slab.push(&l.open, i)
		l.flushes++
		return true
	}
	return false
}

// leaveFlush takes the flush in slot i out of the queue it is in.
func (w *Worker) leaveFlush(i uint32) {
	s := &w.slab.slots[i]
	l := &w.t.lanes[s.lane]
	switch s.arg {
	case flushHeld:
		w.slab.unlink(&l.held, i)
		s.arg = flushAdmitted
	case flushOpen:
		w.slab.unlink(&l.open, i)
		l.flushes--
		s.arg = flushPassed
	}
}

// endSends ends everything that waits in the lane's queues for the peer.
func (w *Worker) endSends(lane uint32, st ucs.Status) {
	for {
		l := &w.t.lanes[lane]
		i := l.open.head
		if i == 0 {
			i = l.held.head
		}
		if i == 0 {
			return
		}
		if w.slab.slots[i].op == opFlush {
			w.leaveFlush(i)
		}
		w.end(i, st)
	}
}
