package ucp

import (
	"math"

	"github.com/goucx/goucx/uct"
)

// amPlace is where the bytes of an active message lie.
type amPlace struct {
	kind   placeKind
	port   *port   // with placeLent
	source *source // with placeSender
	id     uint64  // with placeLent Desc.Handle, with placeSender what the sender knows it by
	chunk  chunk   // with placePool
}

// placeKind says what Keep has to do.
type placeKind uint8

const (
	placeCell   placeKind = iota // memory of the transport, which needs it back: copy
	placeLent                    // memory of the transport that it lends
	placePool                    // memory of the pool
	placeSender                  // the sender still has the data; the header is in a cell
)

// user takes in a whole active message and reports whether its memory is kept.
// It is callAM without its lock, spelled out.
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

// handleUser takes in an active message, or the beginning of one, that the hot
// half does not serve. It reports whether the message's memory is kept.
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
		p.w.dispatch(nil, d.Header, data, amPlace{}) // what it keeps is a copy
		return false
	}
	return p.userRare(p.source(d.Source), d, data)
}

// userRare takes in a whole message that wants an answer, lies in memory that is
// lent, or makes no sense.
func (p *port) userRare(s *source, d *uct.Desc, data []byte) bool {
	if !p.checkWord(s, d.Header, len(data)) || d.Header&wordWhole != 0 {
		p.garbage(s)
		return false
	}
	place := amPlace{}
	if d.Flags&uct.DescCanKeep != 0 {
		place = amPlace{kind: placeLent, port: p, id: d.Handle}
	}
	return p.w.dispatch(s, d.Header, data, place) && place.kind == placeLent
}

// checkWord reports whether a header word makes sense before n bytes from s.
func (p *port) checkWord(s *source, word uint64, n int) bool {
	h := wordHeader(word)
	return h <= n && h <= MaxAMHeader && word&^wordMask == 0 && (word&wordReply == 0 || s.peer != 0)
}

// dispatch runs the handler of a message that is there whole, header and data in
// b, and reports whether it was kept.
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

// reset makes m as the hot half expects it, and reports whether it was kept.
func (m *AM) reset() bool {
	kept := m.kept != nil
	m.Header, m.From, m.Rendezvous = nil, m.w.nobody(), false
	m.place, m.kept = amPlace{}, nil
	return kept
}

// poison has a handler that retained m or its slices read what was never sent.
func (m *AM) poison() {
	m.ID, m.Len = 0xdead, -1
	m.Header, m.Data = poisonBytes[:], poisonBytes[:]
}

var poisonBytes = [8]byte{0xde, 0xad, 0xde, 0xad, 0xde, 0xad, 0xde, 0xad}

// userFirst opens an active message in fragments.
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

// userComplete runs the handler of the message that s has assembled.
func (w *Worker) userComplete(s *source) {
	c := s.chunk
	b := w.pool.bytes(c)[:s.total:s.total]
	if !w.dispatch(s, s.tag, b, amPlace{kind: placePool, chunk: c}) {
		w.unhold(c)
	}
}
