package ucp

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// The owner's side of software operations. Whatever a request names is checked
// here, whoever sent it. A request that the memory's key does not allow fails
// alone: its answer says so, or the next answer to a flush of the same source.

// swPut writes data behind a key.
func (p *port) swPut(s *source, addr uint64, data []byte) {
	if s.peer == 0 || len(data) <= swKeyLen {
		p.garbage(s)
		return
	}
	key, data := swKey(word(data, 0)), data[swKeyLen:]
	m, to, st := p.w.ctx.sw.enter(key, addr, uint64(len(data)), uct.MemRemotePut)
	if st != ucs.OK {
		s.swFailed(st)
		return
	}
	copyWhole(to, data)
	m.leave()
}

// swFailed keeps what a flush is to be answered.
func (s *source) swFailed(st ucs.Status) {
	if s.swErr == ucs.OK {
		s.swErr = st
	}
}

// swGet answers with the bytes that are asked for, as they are now: what the
// source sends behind its request must not change them.
func (p *port) swGet(s *source, addr uint64, data []byte) {
	if s.peer == 0 || len(data) != swGetLen || word(data, 2) == 0 || word(data, 2) > swMaxPiece {
		p.garbage(s)
		return
	}
	w, id := p.w, word(data, 1)
	m, from, st := w.ctx.sw.enter(swKey(word(data, 0)), addr, word(data, 2), uct.MemRemoteGet)
	if st != ucs.OK {
		w.swAnswer(s, id, 0, st)
		return
	}
	w.swGive(s, id, from)
	m.leave()
}

// swGive sends b to s, in as many messages as it takes; what finds no room waits
// as a copy.
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

// swAtomic carries out an atomic, by the processor.
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
	w, id, v, cmp := p.w, word(data, 1), word(data, 2), word(data, 3)
	m, b, st := w.ctx.sw.enter(swKey(word(data, 0)), addr, width, uct.MemRemoteAtomic)
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

// swFlush answers what became of all that s sent before.
func (p *port) swFlush(s *source, data []byte) {
	if s.peer == 0 || len(data) != swKeyLen {
		p.garbage(s)
		return
	}
	st := s.swErr
	s.swErr = ucs.OK
	p.w.swAnswer(s, word(data, 0), 0, st)
}

func (w *Worker) swAnswer(s *source, id, v uint64, st ucs.Status) {
	w.reply(s, control{id: amDone, hdr: id, n: swDoneLen, a: v, b: uint64(st)})
}
