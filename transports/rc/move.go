package rc

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

const (
	// lingerFor is how long a queue pair that was left lingers where no word is owed, and
	// after how long the word is said again; lingerMost is how long it waits for
	// acknowledgements when nobody needs the connection any more.
	lingerFor, lingerMost = 500 * time.Millisecond, 20 * time.Second
	// slowTimer is how many times its time-out a device may take: IBTA bounds it so.
	slowTimer = 4
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
		if err := p.openQueue(); err != nil { // it was half-open
			e.f.failLater(e, err)
			return
		}
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

// retire gives up a pair: it lingers until all that either side sent in it has arrived.
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
	p.said = p.retired.Add(-lingerFor)
	p.settle()
	f.dying = append(f.dying, p)
}

// bury tells the peers of pairs left that all has arrived there, and closes those that
// nobody needs.
func (f *iface) bury(now ucs.Time) {
	for _, p := range f.dying {
		if p.q.head == p.q.tail && p.owed() && now.Sub(p.said) >= lingerFor && !f.ud.full() {
			p.said = now
			p.e.sayDrained(p.id, !p.drained)
		}
		if p.over(now.Sub(p.retired)) {
			p.close(ucs.Canceled)
		}
	}
	f.forgetClosed()
}

// forgetClosed takes closed pairs from those that linger.
func (f *iface) forgetClosed() {
	f.dying = slices.DeleteFunc(f.dying, func(p *pair) bool { return p.closed })
}

// owed reports whether both sides wait for the word that a pair is drained: not where it
// was not used, since who reads one leaves it by a marker.
func (p *pair) owed() bool { return p.q.tail != 0 && !p.e.released }

// over reports whether nobody needs a pair that was left some time ago. As long as the
// peer repeats anything it must be answered, or takes this side for dead.
func (p *pair) over(ago time.Duration) bool {
	switch {
	case p.doomed, p.e.released && ago >= lingerMost:
		return true
	case p.q.head != p.q.tail:
		return false
	case !p.owed():
		return ago >= lingerFor
	}
	return p.drained || ago >= lingerFor+slowTimer*p.q.f.retriesFor()
}

// sayDrained tells the peer that nothing of this side's is under way in a pair, nor will
// be; asks: and that this side waits for the same word.
func (e *ep) sayDrained(id machine.PairID, asks bool) {
	m := machine.Msg{Worker: e.f.worker, From: e.m.Conn(), To: e.m.Remote(), Pair: id}
	e.f.send(&note{msg: m, drained: true, asks: asks}, &e.peer, e.ah)
}

// heardDrained takes that word of the peer's. Who asks for it is answered here where
// the pair is there no more.
func (e *ep) heardDrained(n *note) {
	id, there := n.msg.Pair.Flip(), false
	for _, ps := range [...][]*pair{e.pairs, e.f.dying} {
		for _, p := range ps {
			if p.e == e && p.id == id {
				p.drained, there = true, true
			}
		}
	}
	if n.asks && !there {
		e.sayDrained(id, false)
	}
}
