package ucp

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Emulated RMA and AMO, the owner's side. Each handler checks everything that a request
// names. A request that the memory's key does not permit fails alone: its reply has the
// status, or the next reply to a flush of the same rx connection.
//
// The requests of one rx connection are carried out in the order in which they arrive.
// So a reply to amFlush covers all requests before it, and the first error is all that
// has to be kept.

// swPut carries out a put.
func (p *port) swPut(s *source, addr uint64, data []byte) {
	if s.peer == 0 || len(data) <= swKeyLen {
		p.garbage(s)
		return
	}
	key, data := swKey(payloadUint64(data, 0)), data[swKeyLen:]
	m, to, st := p.w.ctx.emul.enter(key, addr, uint64(len(data)), uct.MemRemotePut)
	if st != ucs.OK {
		s.swFailed(st)
		return
	}
	copyWhole(to, data)
	m.leave()
}

// swFailed records the status for the reply to the next flush.
func (s *source) swFailed(st ucs.Status) {
	if s.swErr == ucs.OK {
		s.swErr = st
	}
}

// swGet replies with the requested bytes as they are now. Requests that the peer sends
// later must not change them.
func (p *port) swGet(s *source, addr uint64, data []byte) {
	if s.peer == 0 || len(data) != swGetLen || payloadUint64(data, 2) == 0 || payloadUint64(data, 2) > swMaxPiece {
		p.garbage(s)
		return
	}
	w, id := p.w, payloadUint64(data, 1)
	m, from, st := w.ctx.emul.enter(swKey(payloadUint64(data, 0)), addr, payloadUint64(data, 2), uct.MemRemoteGet)
	if st != ucs.OK {
		w.swAnswer(s, id, 0, st)
		return
	}
	w.swGive(s, id, from)
	m.leave()
}

// swGive sends b to the sender of s, in as many messages as needed. If it gets NoResource
// it queues a copy.
func (w *Worker) swGive(s *source, id uint64, b []byte) {
	lane := w.replyLane(s)
	if lane == 0 {
		w.unanswered(s, amGot)
		return
	}
	for another := false; len(b) > 0; {
		l := &w.t.lanes[lane]
		n := min(len(b), l.bcopy)
		st := ucs.NoResource
		if l.urgent.head == 0 && l.status == ucs.OK {
			var to []byte
			ep := l.transport()
			if to, st = ep.ReserveAM(amGot, id, n); st == ucs.OK {
				copyWhole(to, b[:n])
				ep.CommitAM(n)
			}
		}
		if st != ucs.OK && st != ucs.NoResource && !another {
			if lane = w.anotherReply(s); lane == 0 {
				w.unanswered(s, amGot)
				return
			}
			another = true
			continue
		}
		if st == ucs.NoResource && l.status == ucs.OK {
			c := w.pool.get(n)
			text := w.pool.bytes(c)[:n:n]
			copyWhole(text, b[:n])
			w.controlLater(lane, control{id: amGot, hdr: id, text: text, mem: c})
		}
		s.replied = true
		b = b[n:]
	}
}

// swAtomic carries out an atomic with the CPU.
func (p *port) swAtomic(s *source, addr uint64, data []byte) {
	if s.peer == 0 || len(data) != swAtomicLen {
		p.garbage(s)
		return
	}
	op, width := uct.AtomicOp(data[32]), uint64(data[33])
	if op >= uct.NumAtomicOps || width != 4 && width != 8 || addr%width != 0 {
		p.garbage(s)
		return
	}
	w, id, v, cmp := p.w, payloadUint64(data, 1), payloadUint64(data, 2), payloadUint64(data, 3)
	m, b, st := w.ctx.emul.enter(swKey(payloadUint64(data, 0)), addr, width, uct.MemRemoteAtomic)
	old := uint64(0)
	if st == ucs.OK {
		if width == 4 {
			at, _ := wordAt[uint32](b)
			before, _ := op.Fetch32(at, uint32(v), uint32(cmp))
			old = uint64(before)
		} else {
			at, _ := wordAt[uint64](b)
			old, _ = op.Fetch64(at, v, cmp)
		}
		m.leave()
	}
	switch {
	case id != 0:
		w.swAnswer(s, id, old, st)
	case st != ucs.OK:
		s.swFailed(st)
	}
}

// swFlush replies with the status of all requests that s received before.
func (p *port) swFlush(s *source, data []byte) {
	if s.peer == 0 || len(data) != swKeyLen {
		p.garbage(s)
		return
	}
	st := s.swErr
	s.swErr = ucs.OK
	p.w.swAnswer(s, payloadUint64(data, 0), 0, st)
}

func (w *Worker) swAnswer(s *source, id, v uint64, st ucs.Status) {
	w.reply(s, control{id: amDone, hdr: id, n: swDoneLen, a: v, b: uint64(st)})
}
