package ucp

import (
	"math"

	"github.com/goucx/goucx/uct"
)

// amStorage describes where the bytes of an active message are stored.
type amStorage struct {
	kind   storageKind
	iface   *port   // for storageRetainable
	rx *source // for storageSender
	id     uint64  // for storageRetainable Desc.Handle, for storageSender the sender's id of the message
	chunk  chunk   // for storagePool
}

// storageKind selects what Retain has to do.
type storageKind uint8

const (
	storageTransient   storageKind = iota // transport memory, valid during the callback only: Retain copies
	storageRetainable                    // transport memory that may be retained (uct.DescCanRetain)
	storagePool                    // pool memory
	storageSender                  // the data is at the sender, the header in transport memory
)

// handleUserFast receives a whole active message and reports whether its memory is retained. It
// is callAM without the lock, inlined by hand.
// hot: BenchmarkAMPair
//
//go:nosplit
func (p *port) handleUserFast(d *uct.Desc, data []byte) bool {
	w := p.w
	h := w.am.handler(d.Header)
	if d.Header>>16|uint64(d.Flags) != 0 || h == nil || w.am.multi {
		return p.handleUserSlow(d, data)
	}
	m := &w.am.m
	if poisonAM {
		m.Header = nil
	}
	m.ID, m.Data, m.Len = AMID(d.Header), data, len(data)
	w.am.inHandler, w.t.locked = true, true
	h(m)
	if len(w.am.failureCalls) > 0 {
		w.runFailureCalls()
	}
	w.am.inHandler, w.t.locked = false, false
	if m.retained != nil {
		m.retained = nil
	}
	if poisonAM {
		m.poison()
	}
	return false
}

// handleUser receives a whole active message, a first fragment or an RTS that the fast
// path does not handle. It reports whether the message's memory is retained.
func (p *port) handleUser(s *source, d *uct.Desc, data []byte) bool {
	if p.w.budget.exhausted && d.ID != amUserRTS {
		p.w.requestRndvOnly(s)
	}
	switch d.ID {
	case amUser:
		return p.handleUserSlow(d, data)
	case amUserFirst:
		p.handleUserFirst(s, d.Header, data)
	default:
		p.handleUserRTS(s, d.Header, data)
	}
	return false
}

// handleUserSlow is user for every whole message.
// hot: BenchmarkAMPair
//
//go:noinline
func (p *port) handleUserSlow(d *uct.Desc, data []byte) bool {
	if n := wordHeaderLen(d.Header); d.Header>>32 == 0 && d.Flags == 0 && n <= min(len(data), MaxAMHeader) {
		p.w.dispatch(nil, d.Header, data, amStorage{}) // Retain copies
		return false
	}
	return p.handleUserChecked(p.source(d.RxConn), d, data)
}

// handleUserChecked receives a whole message that requests a reply, is in memory that may be
// retained, or is malformed.
func (p *port) handleUserChecked(s *source, d *uct.Desc, data []byte) bool {
	if !p.validWord(s, d.Header, len(data)) || d.Header&wordPrefetch != 0 {
		p.garbage(s)
		return false
	}
	place := amStorage{}
	if d.Flags&uct.DescCanRetain != 0 {
		place = amStorage{kind: storageRetainable, iface: p, id: d.Handle}
	}
	return p.w.dispatch(s, d.Header, data, place) && place.kind == storageRetainable
}

// checkWord reports whether header word is valid for a message of n bytes from s.
func (p *port) validWord(s *source, word uint64, n int) bool {
	h := wordHeaderLen(word)
	return h <= n && h <= MaxAMHeader && word&^wordMask == 0 && (word&wordReply == 0 || s.peer != 0)
}

// dispatch runs the handler of a message whose header and data are complete in b. It
// reports whether the handler called Retain.
func (w *Worker) dispatch(s *source, word uint64, b []byte, place amStorage) bool {
	h := w.am.handler(word)
	if h == nil {
		w.unknownAM(AMID(word))
		return false
	}
	n := wordHeaderLen(word)
	m := &w.am.m
	m.ID, m.Len = AMID(word), len(b)-n
	m.Header, m.Data, m.storage = b[:n:n], b[n:], place
	if word&wordReply != 0 {
		m.From = w.fromEndpoint(s)
	}
	w.callAM(h)
	return m.reset()
}

// reset restores the state of m that the fast path expects. It reports whether the
// handler called Retain.
func (m *AM) reset() bool {
	kept := m.retained != nil
	m.Header, m.From, m.Rendezvous = nil, m.w.closedEndpoint(), false
	m.storage, m.retained = amStorage{}, nil
	return kept
}

// poison overwrites m, so that a handler that retained m or its slices reads
// recognizable garbage.
func (m *AM) poison() {
	m.ID, m.Len = 0xdead, -1
	m.Header, m.Data = poisonBytes[:], poisonBytes[:]
}

var poisonBytes = [8]byte{0xde, 0xad, 0xde, 0xad, 0xde, 0xad, 0xde, 0xad}

// handleUserFirst receives the first fragment of an active message.
func (p *port) handleUserFirst(s *source, head uint64, data []byte) {
	w := p.w
	h := wordHeaderLen(head)
	if s.into != reasmNone || len(data) <= firstHead+h || !p.validWord(s, head, len(data)) || head&wordPrefetch != 0 {
		p.garbage(s)
		return
	}
	n := payloadUint64(data, 0)
	data = data[firstHead:]
	if n > math.MaxInt-MaxAMHeader || uint64(len(data)-h) >= n {
		p.garbage(s)
		return
	}
	s.total, s.got, s.tag = n+uint64(h), 0, head
	s.count++
	if w.am.handler(head) == nil {
		w.unknownAM(AMID(head))
		s.into = reasmDiscard
	} else {
		s.into = reasmHandler
		s.chunk = w.allocBudgeted(int(min(s.total, maxPrealloc)))
	}
	w.addFragment(s, data)
}

// userReassembled runs the handler of the message that s has reassembled.
func (w *Worker) userReassembled(s *source) {
	c := s.chunk
	b := w.pool.bytes(c)[:s.total:s.total]
	if !w.dispatch(s, s.tag, b, amStorage{kind: storagePool, chunk: c}) {
		w.freeBudgeted(c)
	}
}
