package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// control is a message of the protocol itself, without data of the program. Its
// payload is the first n ≤ 16 bytes of a and b, little-endian, or text.
type control struct {
	id   uct.AMID
	hdr  uint64
	n    int
	a, b uint64
	text []byte
	mem  chunk // of the pool, that holds text; only with controlLater
}

// reply sends m to the worker whose messages come by s. It may be called from
// anywhere, callbacks of the transport among them. False: nobody knows who sends
// by s, or no transport leads back to him; he hears of that, too.
// hot: BenchmarkTagSync
func (w *Worker) reply(s *source, m control) bool {
	lane := s.reply
	if lane == 0 {
		if lane = w.replyLane(s); lane == 0 {
			return w.unanswered(s, m.id)
		}
	}
	if !w.control(lane, m) {
		if lane = w.anotherReply(s); lane == 0 {
			return w.unanswered(s, m.id)
		}
		w.control(lane, m)
	}
	s.replied = s.replied || m.id != amThrottle // which nobody waits for
	return true
}

// unanswered ends the connection of one who waits for an answer that cannot reach him.
//
//go:noinline
func (w *Worker) unanswered(s *source, id uct.AMID) bool {
	if id != amThrottle {
		s.port.iface.Disconnect(s.id)
	}
	return false
}

// control sends m by a lane. What finds no room goes before everything else that
// waits there: it lets others go on, and needs no order with them. False: the lane's
// connection is over, which its transport will report, or has.
func (w *Worker) control(lane uint32, m control) bool {
	l := &w.t.lanes[lane]
	if l.status != ucs.OK {
		return false
	}
	if l.urgent.head == 0 {
		if st := l.sendControl(m); st != ucs.NoResource {
			return st == ucs.OK
		}
	}
	if len(m.text) > 0 { // which is the caller's
		m.mem = w.pool.get(len(m.text))
		m.text = append(w.pool.bytes(m.mem)[:0], m.text...)
	}
	w.controlLater(lane, m)
	return true
}

// controlLater has m wait for room.
func (w *Worker) controlLater(lane uint32, m control) {
	l := &w.t.lanes[lane]
	i := w.slab.take(opControl)
	s := &w.slab.slots[i]
	s.lane, s.parent, s.flags = lane, uint32(m.id), flagReported
	s.tag, s.arg, s.off, s.n = m.hdr, m.a, m.b, uint64(m.n)
	w.slab.bufs[i] = m.text
	if m.mem != 0 {
		s.flags |= flagAside
		w.slab.copies[i] = m.mem
	}
	w.slab.push(&l.urgent, i)
	if st := w.try(i); st != ucs.InProgress {
		w.end(i, st)
	}
}

// sendControl sends m, or answers NoResource.
func (l *lane) sendControl(m control) ucs.Status {
	n := max(m.n, min(len(m.text), l.bcopy)) // a reason may be cut
	ep := l.transport()
	if n == 0 {
		return ep.AMShort(m.id, m.hdr, nil)
	}
	b, st := ep.ReserveAM(m.id, m.hdr, n)
	if st != ucs.OK {
		return st
	}
	if m.n > 0 {
		var p [16]byte
		binary.LittleEndian.PutUint64(p[:], m.a)
		binary.LittleEndian.PutUint64(p[8:], m.b)
		copy(b, p[:m.n])
	} else {
		copy(b, m.text)
	}
	ep.CommitAM(n)
	return ucs.OK
}

func (w *Worker) resumeControl(i uint32) ucs.Status {
	s := &w.slab.slots[i]
	l := &w.t.lanes[s.lane]
	if l.status != ucs.OK {
		return l.status
	}
	return l.sendControl(control{
		id: uct.AMID(s.parent), hdr: s.tag, n: int(s.n), a: s.arg, b: s.off, text: w.slab.bufs[i],
	})
}

// sendUrgent sends the control messages that wait on lane i; false where one
// finds no room still. Their tokens stay in the pending queue and are skipped.
//
//go:noinline
func (w *Worker) sendUrgent(lane uint32) bool {
	for {
		i := w.t.lanes[lane].urgent.head
		if i == 0 {
			return true
		}
		st := w.resumeControl(i)
		if st == ucs.NoResource {
			return false
		}
		w.end(i, st)
	}
}
