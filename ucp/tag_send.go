package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
)

// sendOp is the slot of a send: of a tag message or of an active message. A fragmented message
// is in no chain, so its number takes the place of the link.
type sendOp struct {
	request.Header
	phase  phase
	wants  sendWants
	_      uint16
	number uint32 // of a fragmented message
	hdr    uint64 // tag or header word; after the receiver's request its id
	value  uint64 // of request.TagSendUint64
	off    uint64 // bytes sent
	length uint64 // bytes to send
}

// phase is the state of a send.
type phase uint8

const (
	phaseNew     phase = iota // nothing was sent; or a fragmented message was sent in part
	phaseMatch                // sent completely, not yet matched; in lane.unacked
	phaseRTS                  // RTS sent, not yet requested; in lane.unacked
	phaseData                 // requested; in lane.unacked
	phaseExposed              // its memory is exposed to the receiver; in lane.unacked
)

// sendWants says how a send is to be made.
type sendWants uint8

const (
	sendSync  sendWants = 1 << iota // completes when it is matched
	sendEager                       // force eager
	sendRndv                        // force rendezvous
)

// exposes reports whether the peer may read the memory of the message.
func exposes(s *request.Slot) bool {
	return s.Op.Sends() && request.As[sendOp](s).phase == phaseExposed
}

var tagSendOperation = operation{progress: (*thread).resumeTagSend, complete: (*thread).sendCompleted, cancel: (*thread).cancelSend}

// sendParams has the parameters of a send's slow path. It is passed by reference: a copy right after its fields were
// written would wait for all stores before it, which may be on their way to the peer.
type sendParams struct {
	op  request.Kind
	buf []byte
	vec vec
	arg uint64
	tag Tag
	n   int

	wants sendWants
}

//go:noinline
func (e Endpoint) tagSendUint64Slow(v uint64, tag Tag) Request {
	t := e.thread()
	t.lock()
	defer t.unlock()
	return t.tagSend(e, &sendParams{op: request.TagSendUint64, arg: v, tag: tag, n: 8})
}

// tagSendInlineSlow sends a copy of p.
//
//go:noinline
func (e Endpoint) tagSendInlineSlow(p []byte, tag Tag) Request {
	if e.t == nil {
		return closedThread.refuse(request.TagSend, e, ucs.Closed)
	}
	e.t.lock()
	defer e.t.unlock()
	w := e.t
	if len(p) > maxInline {
		return e.t.refuse(request.TagSend, e, ucs.TooLong)
	}
	c := w.pool.Get(len(p))
	b := w.pool.Bytes(c)[:copy(w.pool.Bytes(c), p)]
	r := w.tagSend(e, &sendParams{op: request.TagSend, buf: b, tag: tag, n: len(b)})
	if i := w.slab.Find(r.id); i != 0 && r.id&refusedBit == 0 {
		// In progress: the copy is freed with the slot.
		w.slab.Slots[i].Flags |= request.FlagExtra
		w.slab.copies[i] = c
		return r
	}
	w.pool.Put(c)
	return r
}

// tagSend begins a send on endpoint e.
func (w *thread) tagSend(e Endpoint, m *sendParams) Request {
	k := w.endpoint(e)
	if k == 0 {
		return w.refuse(m.op, e, ucs.Closed)
	}
	if st := w.ctx.features.has(FeatureTag); st != ucs.OK {
		return w.refuse(m.op, e, st)
	}
	if st := w.connect(k); st != ucs.OK {
		return w.refuse(m.op, e, st)
	}
	if l := &w.lanes[w.eps[k].lane]; m.op == request.TagSend && m.wants == 0 && m.n <= l.maxShort {
		if l.ep.AMShort(wire.Eager, uint64(m.tag), m.buf) == ucs.OK {
			return Request{}
		}
	}
	i := w.slab.Alloc(m.op)
	s := request.As[sendOp](&w.slab.Slots[i])
	s.EP, s.Lane = k, w.eps[k].lane
	s.hdr, s.value, s.off, s.length = uint64(m.tag), m.arg, 0, uint64(m.n)
	s.wants = m.wants
	w.slab.Bufs[i] = m.buf
	if m.op == request.TagSendV {
		w.slab.vecs[i] = m.vec
		s.Flags |= request.FlagExtra
	}
	return w.start(i)
}

// resumeTagSend starts or continues a send in the form that it has: eager, in fragments as
// far as the transport has resources, or rendezvous.
func (w *thread) resumeTagSend(i uint32) ucs.Status {
	s := request.As[sendOp](&w.slab.Slots[i])
	l := &w.lanes[s.Lane]
	n := int(s.length)
	switch {
	case l.state == laneFailed:
		return l.status()
	case s.phase == phaseData:
		return w.sendData(i, l)
	case s.off > 0: // a fragment was sent
	case l.usesRndv(s) || s.length > l.maxAllocEager && l.fetchesSooner(w, i):
		return w.sendRTS(i, l)
	case s.wants&sendSync != 0:
		return w.sendSync(i, l)
	case n <= l.ifaceMaxShort && s.Op == request.TagSend:
		return l.ep.AMShort(wire.Eager, s.hdr, w.slab.Bufs[i])
	case l.ifaceMaxShort >= 8 && s.Op == request.TagSendUint64:
		return l.ep.AMUint64(wire.Eager, s.hdr, s.value)
	case n <= l.maxBcopy:
		b, st := l.ep.ReserveAM(wire.Eager, s.hdr, n)
		if st == ucs.OK {
			l.ep.CommitAM(w.slab.fill(b, i))
		}
		return st
	}
	return w.sendFragments(i, l)
}

// sendFragments sends the message in slot i in fragments, as far as the transport has
// resources. The first one numbers the message.
func (w *thread) sendFragments(i uint32, l *lane) ucs.Status {
	s := request.As[sendOp](&w.slab.Slots[i])
	if s.off == 0 {
		id, header := wire.First, []byte(nil)
		if s.Op == request.AMSend {
			id, header = wire.UserFirst, w.savedHeader(i)
		}
		b, st := l.ep.ReserveAM(id, s.hdr, l.maxBcopy)
		if st != ucs.OK {
			return st
		}
		binary.LittleEndian.PutUint64(b, s.length)
		h := wire.FirstHeaderLen + copy(b[wire.FirstHeaderLen:], header)
		k := w.slab.fill(b[h:], i)
		l.ep.CommitAM(h + k)
		s.off = uint64(k)
		l.fragSeq++
		s.number = uint32(l.fragSeq)
		w.count.Inc(cntFragmented)
	}
	for s.off < s.length {
		b, st := l.ep.ReserveAM(wire.Next, uint64(s.number), min(l.maxBcopy, int(s.length-s.off)))
		if st != ucs.OK {
			return st
		}
		k := w.slab.fill(b, i)
		l.ep.CommitAM(k)
		s.off += uint64(k)
	}
	return ucs.OK
}

// fill copies the next bytes of the message in slot i to b, and returns their number.
func (b *slab) fill(p []byte, i uint32) int {
	s := request.As[sendOp](&b.Slots[i])
	off := int(s.off)
	switch s.Op {
	case request.TagSendV:
	case request.TagSendUint64:
		var v [8]byte
		binary.LittleEndian.PutUint64(v[:], s.value)
		return copy(p, v[off:])
	default:
		return copy(p, b.Bufs[i][off:])
	}
	v := b.vecs[i]
	n := v.gather(p, s.off)
	b.vecs[i] = v
	return n
}
