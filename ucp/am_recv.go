package ucp

import (
	"github.com/goucx/goucx/uct"
)

// amPlace is where the bytes of an active message lie.
type amPlace struct {
	kind  placeKind
	port  *port  // with placeLent
	lent  uint64 // Desc.Handle, with placeLent
	chunk chunk  // with placeChunk
}

// placeKind says what Keep has to do.
type placeKind uint8

const (
	placeCell  placeKind = iota // memory of the transport, which needs it back: copy
	placeLent                   // memory of the transport that it lends
	placeChunk                  // memory of the pool
)

// user takes in a whole active message and reports whether its memory is kept.
// hot: BenchmarkAMPair
func (p *port) user(d *uct.Desc, data []byte) bool {
	w := p.w
	h := w.am.handler(d.Header)
	if d.Header>>16 != 0 || d.Flags != 0 || h == nil {
		return p.userSlow(d, data)
	}
	m := &w.am.m
	m.ID, m.Data, m.Len = AMID(d.Header), data, len(data)
	w.callAM(h)
	if m.kept != nil {
		m.kept = nil
	}
	return false
}

// userSlow is user for every message.
//
//go:noinline
func (p *port) userSlow(d *uct.Desc, data []byte) bool {
	w := p.w
	word := d.Header
	n := wordHeader(word)
	if n > len(data) || n > MaxAMHeader || word&^wordMask != 0 {
		p.garbage(p.source(d.Source))
		return false
	}
	h := w.am.handler(word)
	if h == nil {
		w.unknownAM(AMID(word))
		return false
	}
	m := &w.am.m
	m.ID, m.Len = AMID(word), len(data)-n
	m.Header, m.Data = data[:n:n], data[n:]
	if d.Flags&uct.DescCanKeep != 0 {
		m.place = amPlace{kind: placeLent, port: p, lent: d.Handle}
	}
	w.callAM(h)
	lent := m.kept != nil && m.place.kind == placeLent
	m.reset()
	return lent
}

// reset makes m as the hot half expects it.
func (m *AM) reset() {
	m.Header, m.From, m.Rendezvous = nil, Endpoint{}, false
	m.place, m.kept = amPlace{}, nil
}

// poison has a handler that retained m or its slices read what was never sent.
func (m *AM) poison() {
	m.ID, m.Len = 0xdead, -1
	m.Header, m.Data = poisonBytes[:], poisonBytes[:]
}

var poisonBytes = [8]byte{0xde, 0xad, 0xde, 0xad, 0xde, 0xad, 0xde, 0xad}

// handleUser takes in an active message, or the beginning of one, that the hot
// half does not serve. It reports whether the message's memory is kept.
func (p *port) handleUser(s *source, d *uct.Desc, data []byte) bool {
	if d.ID == amUser {
		return p.user(d, data)
	}
	p.garbage(s)
	return false
}
