package ucp

import (
	"math"

	"github.com/goucx/goucx/uct"
)

// amPlace describes where the bytes of an active message are stored.
type amPlace struct {
	kind   placeKind
	port   *port   // for placeLent
	source *source // for placeSender
	id     uint64  // for placeLent Desc.Handle, for placeSender the sender's id of the message
	chunk  chunk   // for placePool
}

// placeKind selects what Retain has to do.
type placeKind uint8

const (
	placeCell   placeKind = iota // transport memory, valid during the callback only: Retain copies
	placeLent                    // transport memory that may be retained (uct.DescCanRetain)
	placePool                    // pool memory
	placeSender                  // the data is at the sender, the header in transport memory
)

// user receives a whole active message and reports whether its memory is retained. It
// is callAM without the lock, inlined by hand.
// hot: BenchmarkAMPair
//
//go:nosplit
func (p *port) user(d *uct.Desc, data []byte) bool {
	w := p.w
	h := w.am.handler(d.Header)
	if d.Header>>16|uint64(d.Flags) != 0 || h == nil || w.am.multi {
		return p.userSlow(d, data)
	}
	m := &w.am.m
	if poisonAM {
		m.Header = nil
	}
	m.ID, m.Data, m.Len = AMID(d.Header), data, len(data)
	w.am.inside, w.t.locked = true, true
	h(m)
	if len(w.am.failed) > 0 {
		w.runFailed()
	}
	w.am.inside, w.t.locked = false, false
	if m.kept != nil {
		m.kept = nil
	}
	if poisonAM {
		m.poison()
	}
	return false
}

// handleUser receives a whole active message, a first fragment or an RTS that the fast
// path does not handle. It reports whether the message's memory is retained.
func (p *port) handleUser(s *source, d *uct.Desc, data []byte) bool {
	if p.w.budget.spent && d.ID != amUserRTS {
		p.w.slowDown(s)
	}
	switch d.ID {
	case amUser:
		return p.userSlow(d, data)
	case amUserFirst:
		p.userFirst(s, d.Header, data)
	default:
		p.userRTS(s, d.Header, data)
	}
	return false
}

// userSlow is user for every whole message.
// hot: BenchmarkAMPair
//
//go:noinline
func (p *port) userSlow(d *uct.Desc, data []byte) bool {
	if n := wordHeader(d.Header); d.Header>>32 == 0 && d.Flags == 0 && n <= min(len(data), MaxAMHeader) {
		p.w.dispatch(nil, d.Header, data, amPlace{}) // Retain copies
		return false
	}
	return p.userRare(p.source(d.RxConn), d, data)
}

// userRare receives a whole message that requests a reply, is in memory that may be
// retained, or is malformed.
func (p *port) userRare(s *source, d *uct.Desc, data []byte) bool {
	if !p.checkWord(s, d.Header, len(data)) || d.Header&wordWhole != 0 {
		p.garbage(s)
		return false
	}
	place := amPlace{}
	if d.Flags&uct.DescCanRetain != 0 {
		place = amPlace{kind: placeLent, port: p, id: d.Handle}
	}
	return p.w.dispatch(s, d.Header, data, place) && place.kind == placeLent
}

// checkWord reports whether header word is valid for a message of n bytes from s.
func (p *port) checkWord(s *source, word uint64, n int) bool {
	h := wordHeader(word)
	return h <= n && h <= MaxAMHeader && word&^wordMask == 0 && (word&wordReply == 0 || s.peer != 0)
}

// dispatch runs the handler of a message whose header and data are complete in b. It
// reports whether the handler called Retain.
func (w *Worker) dispatch(s *source, word uint64, b []byte, place amPlace) bool {
	h := w.am.handler(word)
	if h == nil {
		w.unknownAM(AMID(word))
		return false
	}
	n := wordHeader(word)
	m := &w.am.m
	m.ID, m.Len = AMID(word), len(b)-n
	m.Header, m.Data, m.place = b[:n:n], b[n:], place
	if word&wordReply != 0 {
		m.From = w.fromOf(s)
	}
	w.callAM(h)
	return m.reset()
}

// reset restores the state of m that the fast path expects. It reports whether the
// handler called Retain.
func (m *AM) reset() bool {
	kept := m.kept != nil
	m.Header, m.From, m.Rendezvous = nil, m.w.nobody(), false
	m.place, m.kept = amPlace{}, nil
	return kept
}

// poison overwrites m, so that a handler that retained m or its slices reads
// recognizable garbage.
func (m *AM) poison() {
	m.ID, m.Len = 0xdead, -1
	m.Header, m.Data = poisonBytes[:], poisonBytes[:]
}

var poisonBytes = [8]byte{0xde, 0xad, 0xde, 0xad, 0xde, 0xad, 0xde, 0xad}

// userFirst receives the first fragment of an active message.
func (p *port) userFirst(s *source, head uint64, data []byte) {
	w := p.w
	h := wordHeader(head)
	if s.into != intoNothing || len(data) <= firstHead+h || !p.checkWord(s, head, len(data)) || head&wordWhole != 0 {
		p.garbage(s)
		return
	}
	n := word(data, 0)
	data = data[firstHead:]
	if n > math.MaxInt-MaxAMHeader || uint64(len(data)-h) >= n {
		p.garbage(s)
		return
	}
	s.total, s.got, s.tag = n+uint64(h), 0, head
	s.count++
	if w.am.handler(head) == nil {
		w.unknownAM(AMID(head))
		s.into = intoVoid
	} else {
		s.into = intoHandler
		s.chunk = w.hold(int(min(s.total, growLimit)))
	}
	w.add(s, data)
}

// userComplete runs the handler of the message that s has reassembled.
func (w *Worker) userComplete(s *source) {
	c := s.chunk
	b := w.pool.bytes(c)[:s.total:s.total]
	if !w.dispatch(s, s.tag, b, amPlace{kind: placePool, chunk: c}) {
		w.unhold(c)
	}
}
