package ucp

import (
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// maxJoined is the maximum length of header and data that are joined in a buffer for
// one short operation. Above it, writing into a reservation is cheaper.
const maxJoined = 48

// amMessage is an active message to be sent.
type amMessage struct {
	id           AMID
	header, data []byte
	flags        Flags
}

// amSendSlow is the slow path of AMSend. A short message with a header is sent without
// taking the lock.
//
//hot:bench BenchmarkAMPair
//go:noinline
func (e Endpoint) amSendSlow(id AMID, header, data []byte, o Flags) Request {
	if l := e.lane(); len(header)+len(data) <= min(l.amShort, maxJoined) && o&^WantReply == 0 {
		if e.t.sendWhole(l, wire.UserWord(uint16(id), len(header), o&WantReply != 0), header, data) == ucs.OK {
			return Request{}
		}
	}
	return e.amSendAny(id, header, data, o)
}

//go:noinline
func (e Endpoint) amSendAny(id AMID, header, data []byte, o Flags) Request {
	t := e.thread()
	t.lock()
	defer t.unlock()
	return t.amSend(e, amMessage{id, header, data, o})
}

var amSendOperation = operation{progress: (*thread).resumeAMSend, complete: (*thread).sendCompleted, cancel: (*thread).cancelSend}

// amSend posts m on endpoint e.
func (w *thread) amSend(e Endpoint, m amMessage) Request {
	k := w.endpoint(e)
	if k == 0 {
		return w.refuse(request.AMSend, e, ucs.Closed)
	}
	if st := w.ctx.features.has(FeatureAM); st != ucs.OK {
		return w.refuse(request.AMSend, e, st)
	}
	if st := m.flags.check(); st != ucs.OK {
		return w.refuse(request.AMSend, e, st)
	}
	if st := w.connect(k); st != ucs.OK {
		return w.refuse(request.AMSend, e, st)
	}
	l := &w.lanes[w.eps[k].lane]
	if len(m.header) > MaxAMHeader || wire.RTSLen+len(m.header) > l.maxBcopy {
		return w.refuse(request.AMSend, e, ucs.TooLong)
	}
	word := wire.UserWord(uint16(m.id), len(m.header), m.flags&WantReply != 0)
	eager := m.flags&ForceRendezvous == 0 && (uint64(len(m.data)) <= l.maxEager || m.flags&ForceEager != 0)
	fits := l.amShort >= 0 && len(m.header)+len(m.data) <= l.maxBcopy && !l.zcopy.fits(len(m.header), len(m.data))
	if eager && fits {
		if w.sendWhole(l, word, m.header, m.data) == ucs.OK {
			return Request{}
		}
	}
	i := w.slab.Alloc(request.AMSend)
	s := request.As[sendOp](&w.slab.Slots[i])
	s.EP, s.Lane = k, w.eps[k].lane
	s.hdr, s.off, s.length = word, 0, uint64(len(m.data))
	switch {
	case m.flags&ForceRendezvous != 0:
		s.wants = sendRndv
	case m.flags&ForceEager != 0:
		s.wants = sendEager
	}
	w.slab.Bufs[i] = m.data
	if len(m.header) > 0 { // the caller may reuse it after the call
		c := w.pool.Get(len(m.header))
		copy(w.pool.Bytes(c), m.header)
		w.slab.copies[i] = c
		s.Flags |= request.FlagExtra
	}
	return w.start(i)
}

// savedHeader returns the header of the active message in slot i.
func (w *thread) savedHeader(i uint32) []byte {
	n := wire.WordHeaderLen(request.As[sendOp](&w.slab.Slots[i]).hdr)
	if n == 0 {
		return nil
	}
	return w.pool.Bytes(w.slab.copies[i])[:n]
}

// sendWhole sends an active message in one piece.
func (w *thread) sendWhole(l *lane, word uint64, header, data []byte) ucs.Status {
	n := len(header) + len(data)
	b, st := l.reserve(w, wire.User, word, n)
	if st != ucs.OK {
		return st
	}
	copy(b[copy(b, header):], data)
	return l.commit(wire.User, word, b)
}

// resumeAMSend sends a message in one piece, in fragments as far as there are
// resources, or by rendezvous.
func (w *thread) resumeAMSend(i uint32) ucs.Status {
	s := request.As[sendOp](&w.slab.Slots[i])
	l := &w.lanes[s.Lane]
	switch {
	case l.state == laneFailed:
		return l.status()
	case s.phase == phaseData:
		return w.sendData(i, l)
	case s.off > 0: // the first fragment was sent
	case l.usesRndv(s) && (s.length <= maxPrefetch || !l.wantsEager(s)): // a longer one is not fetched for its handler
		return w.sendRTS(i, l)
	case l.zcopy.fits(wire.WordHeaderLen(s.hdr), int(s.length)):
		w.am.vec[0].Buf = w.slab.Bufs[i]
		st := l.ep.AMZcopy(wire.User, s.hdr, w.savedHeader(i), w.am.vec[:], w.slab.Token(i))
		w.am.vec[0].Buf = nil
		if st == ucs.InProgress {
			s.Parts = 1 // the transport reads the buffer until its completion event
		}
		return st
	case wire.WordHeaderLen(s.hdr)+int(s.length) <= l.maxBcopy:
		return w.sendWhole(l, s.hdr, w.savedHeader(i), w.slab.Bufs[i])
	case l.offersNow(w, i):
		return w.sendRTS(i, l)
	}
	return w.sendFragments(i, l)
}

// zcopy is the range of active messages that a lane sends from the program's memory
// without a copy. The transport reports the minimum length from which that is faster. A
// transport that always gathers into its own memory reports none, and max is 0.
type zcopy struct {
	min, max  int // data, bytes
	maxHeader int // bytes
}

func zcopyOf(l uct.Limit) zcopy {
	if l.MinZcopy == 0 || l.MaxVec == 0 {
		return zcopy{}
	}
	return zcopy{l.MinZcopy, l.MaxZcopy, l.MaxHeader}
}

// fits reports whether a message of these lengths is sent without a copy.
func (z *zcopy) fits(header, n int) bool {
	return n <= z.max && n >= z.min && n > 0 && header <= z.maxHeader
}
