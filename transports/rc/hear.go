package rc

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// doubts is how many connections a peer that says hello is asked for at most.
const doubts = 16

// heardNote takes a connection message.
func (f *iface) heardNote(wc *verbs.WC) {
	buf := uint32(wc.ID)
	var n note
	if wc.Status == verbs.WCSuccess {
		if err := f.parseNote(&n, wc); err != nil {
			f.stats.Inc(statGarbage)
			f.d.Log().Sugar().Debugf("dropped a connection message: %v", err)
		} else {
			f.hear(&n)
		}
	}
	f.ud.receive(buf)
}

// parseNote reads a connection message. One that did not come from the interface that it
// names is refused: every answer would go to a third party.
func (f *iface) parseNote(n *note, wc *verbs.WC) error {
	if err := n.parse(f.noteBytes(wc)); err != nil {
		return err
	}
	if a := n.from.address(); !f.d.SentFrom(&a, wc, f.ud.rx.Bytes(uint32(wc.ID))) {
		return fmt.Errorf("connection message in the name of queue pair %#x at %v, port %d, which did not send it: %w",
			uint32(a.QPN), a.Port.GID.Addr(), a.Port.LID, ucs.ErrInvalid)
	}
	return nil
}

// noteBytes is what follows the routing header; nil for a completion with an error, and for
// a datagram that is longer than a connection message.
func (f *iface) noteBytes(wc *verbs.WC) []byte {
	if wc.Status != verbs.WCSuccess || wc.Len < grhLen || wc.Len > grhLen+noteLen {
		return nil
	}
	return f.ud.rx.Bytes(uint32(wc.ID))[grhLen:wc.Len]
}

// hear finds the connection that a message is about.
func (f *iface) hear(n *note) {
	name, m := n.from.iface.name, n.msg
	e := f.conns[m.To]
	if m.To == 0 {
		e = f.remotes[remote{name, m.From}]
	}
	if e != nil && e.peer != n.from { // of nobody's, or in its name
		return
	}
	if m.Kind == machine.Gone && !n.refused {
		f.acknowledgedRefusal(n)
	}
	if n.drained {
		if e != nil {
			e.heardDrained(n)
		}
		return
	}
	if e == nil && m.To == 0 && m.Kind == machine.Hello {
		e = f.greeted(n)
	}
	if e == nil || e.dead != nil {
		f.stray(n)
		return
	}
	e.listen(n)
}

// stray replies to a message about a connection that there is not, or not any more. The
// answer to a CLOSE for a refused access, or of an interface that closes, is its
// acknowledgement. As long as a CLOSE for a refused access has none, the answer to any
// other message has its reason, too.
func (f *iface) stray(n *note) {
	a, ok := machine.Stray(f.worker, n.msg)
	refused := ok && f.refusals.has(&a, &n.from)
	if n.refused || n.hangUp && n.msg.To != 0 {
		a, ok, refused = machine.Msg{Kind: machine.Gone, Worker: f.worker, From: n.msg.To, To: n.msg.From}, true, false
	}
	if ok {
		f.sendTo(&note{msg: a, refused: refused}, &n.from)
	}
}

// greeted finds or makes the connection for the hello of a peer.
func (f *iface) greeted(n *note) *ep {
	if ok, _ := f.place.Reaches(&n.from.port); !ok {
		return nil
	}
	if e := f.meets(n); e != nil {
		if e.m.State() == machine.Opening {
			f.stats.Inc(statCrossed)
		} else {
			f.stats.Inc(statAccepted)
		}
		f.count(e)
		return e
	}
	from, now := n.from.port.Source(), ucs.Now()
	if !f.halfOpen.Admit(from, now, f.giveUp) {
		f.stats.Inc(statPassedOver) // the peer says it again
		return nil
	}
	e, err := f.newEP(&n.from)
	if err != nil {
		f.stats.Inc(statRefused)
		f.d.Log().Sugar().Warnf("refused a connection: %v", err)
		return nil
	}
	f.stats.Inc(statAccepted)
	f.halfOpen.Add(e, from, now)
	e.halfOpen = true
	f.count(e)
	f.doubt(e)
	return e
}

// giveUp releases a connection that is half-open: nobody has used it, and the layer above
// does not know it.
func (f *iface) giveUp(e *ep) {
	f.stats.Inc(statGivenUp)
	f.uncount(e)
	e.release(ucs.Canceled)
}

// confirmed takes e from the half-open connections.
func (e *ep) confirmed() {
	if e.halfOpen {
		e.halfOpen = false
		e.f.halfOpen.Remove(e)
	}
}

// doubt asks the peer of e, which says hello once more, whether it has the other
// connections with it still: one that it has lost fails here before anything that answers
// what comes by e goes by it. Of very many it asks for the oldest; of those that are not
// confirmed for none, since the peer may have sent none of the hellos.
func (f *iface) doubt(e *ep) {
	es := f.byPeer[e.peer.iface.name]
	for _, o := range es[:min(len(es), doubts)] {
		if o != e && o.dead == nil && o.m.Met() {
			o.say(machine.Msg{Kind: machine.Ready, Worker: f.worker, From: o.m.Conn(), To: o.m.Remote()})
		}
	}
}

// meets finds the connection of this side that a hello makes one with: that of an
// endpoint which says hello itself, or else has not been used yet. nil: none.
func (f *iface) meets(n *note) (unused *ep) {
	if n.separate {
		return nil
	}
	for _, e := range f.byPeer[n.from.iface.name] {
		switch {
		case e.dead != nil || e.peer != n.from: // a name can be chosen
		case e.m.State() == machine.Opening && !e.separate:
			return e
		case e.m.State() == machine.Idle && e.opened && unused == nil:
			unused = e
		}
	}
	return unused
}

// count has the connection count as one that the peer may send by.
func (f *iface) count(e *ep) {
	if !e.counted {
		e.counted = true
		f.accepted.Add(1)
	}
}

// uncount ends that, but not while operations of a closed endpoint are under way: their
// events come from Progress, which is called for active ifaces only.
func (f *iface) uncount(e *ep) {
	if e.counted && (e.opened || !f.isUnderWay(e)) {
		e.counted = false
		f.accepted.Add(-1)
	}
}

// listen acts on a message of the peer's machine.
func (e *ep) listen(n *note) {
	if n.hangUp {
		e.f.failLater(e, errOrderly)
		e.f.stray(n)
		return
	}
	if n.refused {
		if n.msg.From != e.m.Remote() { // of an earlier connection
			return
		}
		e.f.failLater(e, errDenied)
		e.f.stray(n)
		return
	}
	ev := machine.Event{Kind: machine.Hear, Msg: n.msg, Busy: e.busy()}
	e.heard = n.half
	if n.msg.Kind == machine.Nap {
		e.settleQueue() // so that it is not busy the next time
	}
	var brought *pair
	if e.m.Wants(n.msg) {
		p, err := e.f.makePair(e)
		if err == nil {
			p.id = n.msg.Pair.Flip()
			e.pairs = append(e.pairs, p)
			brought = p
			err = p.join(n.half, &e.peer.port)
		}
		if err == nil && !e.halfOpen {
			err = p.openQueue()
		}
		if err != nil {
			e.f.stats.Inc(statRefused)
			e.f.d.Log().Sugar().Warnf("cannot take a queue pair of a peer: %v", err)
			ev.Kind = machine.Unable
		}
	}
	e.step(ev)
	if brought != nil && !e.m.Holds(brought.id) {
		e.retire(brought.id)
	}
}
