package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
)

// sending has the parameters of a send's slow path.
type sending struct {
	op  opKind
	buf []byte
	vec [][]byte
	arg uint64
	tag Tag
	n   int

	wishes uint32 // wishSync and the following flags
}

//go:noinline
func (e Endpoint) tagSendSlow(p []byte, tag Tag) Request {
	t := e.thread()
	if t.locked {
		return e.tagSendShared(p, tag)
	}
	return t.w.tagSend(e, sending{op: opTagSend, buf: p, tag: tag, n: len(p)})
}

//go:noinline
func (e Endpoint) tagSendUint64Slow(v uint64, tag Tag) Request {
	t := e.thread()
	t.lock()
	defer t.unlock()
	return t.w.tagSend(e, sending{op: opTagSendUint64, arg: v, tag: tag, n: 8})
}

// tagSendInlineSlow sends a copy of p.
//
//go:noinline
func (e Endpoint) tagSendInlineSlow(p []byte, tag Tag) Request {
	if e.t == nil {
		return closedWorker.t.refuse(opTagSend, e, ucs.Closed)
	}
	e.t.lock()
	defer e.t.unlock()
	w := e.t.w
	if len(p) > maxInline {
		return e.t.refuse(opTagSend, e, ucs.TooLong)
	}
	c := w.pool.get(len(p))
	b := w.pool.bytes(c)[:copy(w.pool.bytes(c), p)]
	r := w.tagSend(e, sending{op: opTagSend, buf: b, tag: tag, n: len(b)})
	if i := w.slab.find(r.id); i != 0 && r.id&refusedBit == 0 {
		// In progress: the copy is freed with the slot.
		w.slab.slots[i].flags |= flagAside
		w.slab.copies[i] = c
		return r
	}
	w.pool.put(c)
	return r
}

// tagSend begins a send on endpoint e.
func (w *Worker) tagSend(e Endpoint, m sending) Request {
	k := w.endpoint(e)
	if k == 0 {
		return w.t.refuse(m.op, e, ucs.Closed)
	}
	if st := w.connect(k); st != ucs.OK {
		return w.t.refuse(m.op, e, st)
	}
	if l := &w.t.lanes[w.eps[k].lane]; m.op == opTagSend && m.wishes == 0 && m.n <= l.short {
		if l.ep.AMShort(amEager, uint64(m.tag), m.buf) == ucs.OK {
			return Request{}
		}
	}
	i := w.slab.take(m.op)
	s := &w.slab.slots[i]
	s.ep, s.lane = k, w.eps[k].lane
	s.tag, s.arg, s.off, s.n = uint64(m.tag), m.arg, 0, uint64(m.n)
	s.parent = m.wishes
	w.slab.bufs[i] = m.buf
	if m.op == opTagSendV {
		w.slab.vecs[i] = m.vec
		s.flags |= flagAside
	}
	return w.start(i)
}

// resumeTagSend starts or continues a send in the form that it has: eager, in fragments as
// far as the transport has resources, or rendezvous.
func (w *Worker) resumeTagSend(i uint32) ucs.Status {
	s := &w.slab.slots[i]
	l := &w.t.lanes[s.lane]
	n := int(s.n)
	switch {
	case l.status != ucs.OK:
		return l.status
	case s.phase() == phaseData:
		return w.sendData(i, l)
	case s.off > 0:
	case w.announces(s, l):
		return w.announce(i, l)
	case s.parent&wishSync != 0:
		return w.sendSync(i, l)
	case n <= l.whole && s.op == opTagSend:
		return l.ep.AMShort(amEager, s.tag, w.slab.bufs[i])
	case l.whole >= 8 && s.op == opTagSendUint64:
		return l.ep.AMUint64(amEager, s.tag, s.arg)
	case n <= l.bcopy:
		b, st := l.ep.ReserveAM(amEager, s.tag, n)
		if st == ucs.OK {
			l.ep.CommitAM(w.fill(b, i))
		}
		return st
	default:
		if st := w.sendFirst(i, l); st != ucs.OK {
			return st
		}
	}
	return w.sendNext(i, l)
}

// sendNext sends the following fragments of the message in slot i.
func (w *Worker) sendNext(i uint32, l *lane) ucs.Status {
	s := &w.slab.slots[i]
	for s.off < s.n {
		b, st := l.ep.ReserveAM(amNext, s.aux64(), min(l.bcopy, int(s.n-s.off)))
		if st != ucs.OK {
			return st
		}
		k := w.fill(b, i)
		l.ep.CommitAM(k)
		s.off += uint64(k)
	}
	return ucs.OK
}

// begun notes that the first k bytes of the fragmented message in s were sent,
// and numbers it.
func (w *Worker) begun(s *slot, l *lane, k int) {
	s.off = uint64(k)
	l.sent++
	s.aux = uint32(l.sent)
	w.count.Inc(cntFragmented)
}

// sendFirst sends the first fragment of a message.
func (w *Worker) sendFirst(i uint32, l *lane) ucs.Status {
	s := &w.slab.slots[i]
	b, st := l.ep.ReserveAM(amFirst, s.tag, l.bcopy)
	if st != ucs.OK {
		return st
	}
	binary.LittleEndian.PutUint64(b, s.n)
	k := w.fill(b[firstHead:], i)
	l.ep.CommitAM(firstHead + k)
	w.begun(s, l, k)
	return ucs.OK
}

// fill copies the next bytes of the message in slot i to b, and returns their number.
func (w *Worker) fill(b []byte, i uint32) int {
	off := int(w.slab.slots[i].off)
	switch w.slab.slots[i].op {
	case opTagSendV:
	case opTagSendUint64:
		var v [8]byte
		binary.LittleEndian.PutUint64(v[:], w.slab.slots[i].arg)
		return copy(b, v[off:])
	default:
		return copy(b, w.slab.bufs[i][off:])
	}
	n := 0
	for _, p := range w.slab.vecs[i] {
		if off >= len(p) {
			off -= len(p)
			continue
		}
		n += copy(b[n:], p[off:])
		off = 0
	}
	return n
}

func (w *Worker) resumeGiveUp(i uint32) ucs.Status {
	s := &w.slab.slots[i]
	l := &w.t.lanes[s.lane]
	if l.status != ucs.OK {
		return l.status
	}
	return l.ep.AMShort(amNext, s.aux64(), nil)
}

// aux64 returns the number of a fragmented message.
func (s *slot) aux64() uint64 { return uint64(s.aux) }
