package rc

import (
	"encoding/binary"
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// pair finds a pair by its name; nil where there is none.
func (e *ep) pair(id machine.PairID) *pair {
	for _, p := range e.pairs {
		if p.id == id {
			return p
		}
	}
	return nil
}

// sendIn moves sending to a pair, or nowhere. A marker in the old one says so.
func (e *ep) sendIn(id machine.PairID) {
	if e.out != nil {
		e.out.control(idMarker, uint64(id))
		e.left = e.out
	}
	e.out = nil
	if p := e.pair(id); p != nil {
		e.out, e.sent = &p.q, true
	}
	e.gate()
	if e.pend.Len() > 0 && e.out == nil {
		e.want()
	}
}

// control sends a message to the other end. Slots are kept for it.
func (q *queue) control(id, hdr uint64) {
	w := q.next()
	binary.LittleEndian.PutUint64(w.Inline[:], hdr)
	binary.LittleEndian.PutUint64(w.Inline[offID:], id)
	w.Op, w.NumSG, w.InlineLen = verbs.OpSend, 0, headLen
	q.plain()
	q.post(w, verbs.SendInline|verbs.SendSignaled)
}

// readIn moves reading to a pair, or nowhere. What came before is delivered first.
func (e *ep) readIn(id machine.PairID) {
	p := e.pair(id)
	if p == nil {
		return
	}
	p.reads = true
	if len(p.early) > 0 {
		e.f.lateOf(p)
	}
}

// control obeys a message of the other end.
func (e *ep) control(p *pair, id, hdr uint64) {
	switch {
	case e.dead != nil:
	case id == idMarker && hdr>>32 == 0:
		e.step(machine.Event{Kind: machine.Marker, Pair: machine.PairID(hdr)})
	case id == idHangUp:
		e.f.failLater(e, errOrderly)
	default:
		e.f.stats.Inc(statGarbage)
		e.f.failLater(e, failErr("it sent a message that is none"))
	}
	p.settle()
}

// retire gives up a pair: it lingers until all that was sent in it has arrived.
func (e *ep) retire(id machine.PairID) {
	p := e.pair(id)
	if p == nil {
		return
	}
	e.pairs = slices.DeleteFunc(e.pairs, func(q *pair) bool { return q == p })
	if e.out == &p.q {
		e.out = nil
		e.gate()
	}
	e.f.linger(p)
}

func (f *iface) linger(p *pair) {
	p.retired = max(ucs.Now(), 1)
	p.settle()
	f.dying = append(f.dying, p)
}
