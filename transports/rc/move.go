package rc

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// A connection moves from one QP to another when it resumes after a suspension, and each
// direction moves by itself. The sender posts a switch-over marker as its last message on the
// old QP, and its next messages on the new one. The receiver delivers the messages of the new
// QP only after it has read the marker. Messages that arrive there earlier are kept in
// pair.early. So the order of messages is kept.
//
// A QP that neither direction uses is retired, but not destroyed at once: it is draining. If
// this side destroyed it while the peer still retransmits, the peer would get no ACK and report
// this side as failed. So a side sends DRAINED, by datagram, when none of its operations is in
// flight on the QP. It destroys the QP when it has both sent and received DRAINED. DRAINED may
// be lost: it is retransmitted every lingerFor. A peer that does not send it is waited for as
// long as its retries can last.
//
// A QP on which this side sent nothing, or whose connection was released, needs no DRAINED. It
// is destroyed after lingerFor, or at the latest after lingerMost.

const (
	// lingerFor is the retention time of a retired QP that needs no DRAINED message, and the
	// retransmission interval of DRAINED. lingerMost bounds how long a QP of a released
	// connection waits for ACKs.
	lingerFor, lingerMost = 500 * time.Millisecond, 20 * time.Second
	// slowTimer is the factor by which a device may exceed its ACK timeout, as IBTA vol. 1 allows.
	slowTimer = 4
)

// pair returns the QP with that id, or nil.
func (e *ep) pair(id machine.PairID) *pair {
	for _, p := range e.pairs {
		if p.id == id {
			return p
		}
	}
	return nil
}

// sendIn moves the sending direction to another QP, or to none. The marker is the last message
// on the old QP.
func (e *ep) sendIn(id machine.PairID) {
	if e.out != nil {
		e.out.control(idMarker, uint64(id))
		e.left = e.out
	}
	e.out = nil
	if p := e.pair(id); p != nil {
		if err := p.openQueue(); err != nil { // the connection was half-open
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

// control posts a control message. spareSlots of the queue are reserved for those.
func (q *queue) control(id, hdr uint64) {
	w := q.next()
	binary.LittleEndian.PutUint64(w.Inline[:], hdr)
	binary.LittleEndian.PutUint64(w.Inline[offID:], id)
	w.Op, w.NumSG, w.InlineLen = verbs.OpSend, 0, headLen
	q.plain()
	q.post(w, verbs.SendInline|verbs.SendSignaled)
}

// readIn moves the receiving direction to another QP, or to none. Messages that arrived early
// are delivered first.
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

// control processes a control message of the peer.
func (e *ep) control(p *pair, id, hdr uint64) {
	switch {
	case e.dead != nil:
	case id == idMarker && hdr>>32 == 0:
		e.step(machine.Event{Kind: machine.EventMarker, Pair: machine.PairID(hdr)})
	case id == idHangUp:
		e.f.failLater(e, errOrderly)
	default:
		e.f.stats.Inc(statGarbage)
		e.f.failLater(e, failErr("it sent an unknown control message"))
	}
	p.settle()
}

// retire retires a QP. It drains until both sides' operations on it are acknowledged.
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

// bury sends DRAINED for draining QPs that have no operation in flight, and destroys those that
// have drained.
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

// forgetClosed removes closed QPs from the draining ones.
func (f *iface) forgetClosed() {
	f.dying = slices.DeleteFunc(f.dying, func(p *pair) bool { return p.closed })
}

// owed reports whether both sides wait for DRAINED. They do not if this side posted nothing on
// the QP: a QP that was in use is left with a marker. Nor do they after the connection was
// released.
func (p *pair) owed() bool { return p.q.tail != 0 && !p.e.released }

// over reports whether a QP that was retired that long ago can be destroyed. Until then it
// acknowledges what the peer retransmits.
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

// sayDrained sends DRAINED: none of this side's operations is in flight on the QP, nor will be.
// asks: this side waits for the DRAINED of the peer.
func (e *ep) sayDrained(id machine.PairID, asks bool) {
	m := machine.Msg{Worker: e.f.worker, From: e.m.Conn(), To: e.m.Remote(), Pair: id}
	e.f.send(&note{msg: m, drained: true, asks: asks}, &e.peer, e.ah)
}

// heardDrained processes a DRAINED of the peer. If this side has destroyed the QP already and
// the peer asks, it replies with DRAINED.
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
