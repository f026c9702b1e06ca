package ucp

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucs"
)

// announces reports whether the message in s is sent by rendezvous.
func (w *Worker) announces(s *slot, l *lane) bool {
	switch {
	case l.throttled || s.parent&wishRndv != 0:
		return true
	case s.parent&wishSync != 0 && int(s.n) > l.bcopy-syncHead:
		return true
	default:
		return s.n > w.rndvThresh && s.parent&wishEager == 0
	}
}

// announce sends the RTS of the send in slot i.
func (w *Worker) announce(i uint32, l *lane) ucs.Status {
	if !w.mayAnnounce(w.slab.slots[i].lane) {
		return ucs.NoResource
	}
	if fault.Enabled {
		fault.At(fault.RTS)
	}
	s := &w.slab.slots[i]
	b, st := l.ep.ReserveAM(amRTS, s.tag, rtsLen) // not a control message: it keeps its order among the messages
	if st != ucs.OK {
		return st
	}
	binary.LittleEndian.PutUint64(b, w.slab.id(i))
	binary.LittleEndian.PutUint64(b[8:], s.n)
	l.ep.CommitAM(rtsLen)
	w.announced(i)
	return ucs.InProgress
}

// announced notes that the send in slot i waits for the receiver's request.
func (w *Worker) announced(i uint32) {
	w.count.Inc(cntRndvSent)
	w.await(i, phaseRTS)
}

// sendSync sends the message in slot i eagerly. The send completes when it is matched.
func (w *Worker) sendSync(i uint32, l *lane) ucs.Status {
	if !w.mayAnnounce(w.slab.slots[i].lane) {
		return ucs.NoResource
	}
	s := &w.slab.slots[i]
	id, n := w.slab.id(i), syncHead+int(s.n)
	if n <= min(l.whole, len(w.scratch)) {
		binary.LittleEndian.PutUint64(w.scratch[:], id)
		w.fill(w.scratch[syncHead:n], i)
		if st := l.ep.AMShort(amSync, s.tag, w.scratch[:n]); st != ucs.OK {
			return st
		}
	} else {
		b, st := l.ep.ReserveAM(amSync, s.tag, n)
		if st != ucs.OK {
			return st
		}
		binary.LittleEndian.PutUint64(b, id)
		w.fill(b[syncHead:], i)
		l.ep.CommitAM(n)
	}
	w.await(i, phaseMatch)
	return ucs.InProgress
}

// acked receives the acknowledgement of a sync send's match, and completes the send.
func (p *port) acked(s *source, id uint64, data []byte) {
	i := p.sendNamed(s, id)
	if i == 0 {
		return
	}
	if p.w.slab.slots[i].phase() != phaseMatch || len(data) != 0 {
		p.garbage(s)
		return
	}
	p.w.end(i, ucs.OK)
}

// asked receives an RTR and starts to send the message's data.
func (p *port) asked(s *source, id uint64, data []byte) {
	if i, theirs, wanted := p.wanted(s, id, data); i != 0 {
		p.w.sendWanted(i, theirs, wanted)
	}
}

// wanted returns the announced send that the sender of s requests by id. theirs is the
// receiver's id, n the number of bytes that it wants. i is 0 if the send has completed, or
// if the request is a protocol violation.
func (p *port) wanted(s *source, id uint64, data []byte) (i uint32, theirs, n uint64) {
	if len(data) != rtrLen {
		p.garbage(s)
		return 0, 0, 0
	}
	if i = p.sendNamed(s, id); i == 0 {
		return 0, 0, 0
	}
	m := &p.w.slab.slots[i]
	theirs, n = payloadUint64(data, 0), payloadUint64(data, 1)
	if m.phase() != phaseRTS && m.phase() != phaseLent || n > m.n {
		p.garbage(s)
		return 0, 0, 0
	}
	return i, theirs, n
}

// sendWanted starts to send the first wanted bytes of the message in slot i.
func (w *Worker) sendWanted(i uint32, theirs, wanted uint64) {
	m := &w.slab.slots[i]
	lane := m.lane
	lent := m.phase() == phaseLent
	m.setPhase(phaseData)
	m.tag, m.n, m.off = theirs, wanted, 0
	if lent {
		w.unlend(i) // the peer cannot read the exposed memory
	} else {
		w.giveCredit(lane)
	}
	if st := w.try(i); st != ucs.InProgress {
		w.end(i, st)
	}
	w.readOver(lane)
}

// dataTurn is the number of bytes of one message that are sent before others that wait
// get their turn.
const dataTurn = 16 << 10

// sendData sends the requested data, as far as the transport has resources. It returns Busy
// if the send moved to the end of its pending queue. The RTS had its place in the order of
// the lane's operations. The data needs none, so it is sent on a stalled lane too.
func (w *Worker) sendData(i uint32, l *lane) ucs.Status {
	s, ep := &w.slab.slots[i], l.transport()
	start := s.off
	for s.off < s.n {
		n := int(min(uint64(l.bcopy), s.n-s.off))
		if s.off%dataTurn < uint64(l.bcopy) && s.off != start && w.resuming && l.queued > 1 &&
			s.flags&flagWaiting != 0 && ep.PendingAdd(w.slab.token(i)) == ucs.OK {
			return ucs.Busy
		}
		if fault.Enabled {
			fault.At(fault.Data)
			if s.off+uint64(n) == s.n {
				fault.At(fault.LastData)
			}
		}
		b, st := ep.ReserveAM(amData, s.tag, n)
		if st != ucs.OK {
			return st
		}
		n = w.fill(b, i)
		ep.CommitAM(n)
		s.off += uint64(n)
	}
	return ucs.OK
}

// refused receives the receiver's refusal of a message, and completes the send.
func (p *port) refused(s *source, id uint64, data []byte) {
	w := p.w
	if len(data) < 1 || len(data) > 1+maxReason {
		p.garbage(s)
		return
	}
	i := p.sendNamed(s, id)
	if i == 0 {
		return
	}
	m := &w.slab.slots[i]
	if m.phase() < phaseMatch {
		p.garbage(s)
		return
	}
	st, sentinel := ucs.Rejected, ErrRejected
	if ucs.Status(data[0]) == ucs.Canceled {
		st, sentinel = ucs.Canceled, ErrCanceled
	}
	err, lane := fmt.Errorf("%w: %s", sentinel, strings.ToValidUTF8(string(data[1:]), "?")), m.lane
	w.saveErr(i, &OpError{Op: m.op.info().name, Peer: w.peerName(m.ep), Lane: w.laneName(lane), Err: err})
	w.end(i, st)
	w.readOver(lane)
}

// throttle receives an amThrottle: the sender of s forbids eager messages (on is 1) or
// allows them again.
func (p *port) throttle(s *source, on uint64, data []byte) {
	w := p.w
	if on > 1 || len(data) != 0 || s.peer == 0 {
		p.garbage(s)
		return
	}
	for i := range w.t.lanes {
		if l := &w.t.lanes[i]; i != 0 && l.ep != nil && l.peer == s.peer {
			l.throttled = on == 1
			w.gate(uint32(i))
		}
	}
}
