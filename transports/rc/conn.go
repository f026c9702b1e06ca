package rc

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// newEP makes a connection that has no pair yet.
func (f *iface) newEP(p *peer) (*ep, error) {
	ah, err := f.pd.CreateAH(p.port.AH(f.port))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ucs.ErrUnreachable, err)
	}
	e := &ep{f: f, peer: *p, ah: ah, q: &f.nowhere}
	if n := len(f.freeSlot); n > 0 {
		e.slot, f.freeSlot = f.freeSlot[n-1], f.freeSlot[:n-1]
		f.eps[e.slot] = e
	} else {
		e.slot = len(f.eps)
		f.eps = append(f.eps, e)
	}
	e.source = uint32(e.slot + 1)
	f.byPeer[p.iface.name] = append(f.byPeer[p.iface.name], e)
	e.name()
	return e, nil
}

// name gives the connection a machine with a new name.
func (e *ep) name() {
	f := e.f
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	e.m = machine.New(machine.Config{
		Worker: f.worker, Conn: binary.LittleEndian.Uint64(b[:]) | 1, TwoStep: true, Timeout: f.retryEvery, Tries: f.tries,
	})
	f.conns[e.m.Conn()] = e
}

// unname is the opposite of name.
func (e *ep) unname() {
	delete(e.f.conns, e.m.Conn())
	delete(e.f.remotes, remote{e.peer.iface.name, e.m.Remote()})
}

// forget takes the connection out of all lists.
func (f *iface) forget(e *ep) {
	e.unname()
	name := e.peer.iface.name
	es := slices.DeleteFunc(f.byPeer[name], func(o *ep) bool { return o == e })
	if len(es) == 0 {
		delete(f.byPeer, name)
	} else {
		f.byPeer[name] = es
	}
	f.eps[e.slot] = nil
	f.freeSlot = append(f.freeSlot, e.slot)
}

// takeable reports whether an endpoint may be opened on the connection.
func (e *ep) takeable() bool {
	return !e.opened && !e.initiated && e.dead == nil && !e.m.SaidBye() && !e.m.HeardBye() && e.m.State() == machine.Open &&
		int(e.peer.iface.seg) >= e.f.seg
}

// want has the connection made, or woken.
func (e *ep) want() {
	if e.dead != nil {
		return
	}
	switch {
	case e.m.State() == machine.Idle:
		e.connect()
	case e.m.State() == machine.Open && e.m.Out() == machine.None && e.m.Awaits() == machine.None:
		e.step(machine.Event{Kind: machine.Wake})
	}
}

// connect says hello.
func (e *ep) connect() {
	f := e.f
	name := e.peer.iface.name
	e.separate = name == f.self.iface.name
	for _, o := range f.byPeer[name] {
		if o != e && o.m.State() != machine.Idle && !o.m.Met() {
			e.separate = true
		}
	}
	f.stats.Inc(statConnected)
	e.step(machine.Event{Kind: machine.Connect})
}

// step lets the machine take an event and does what it says.
func (e *ep) step(ev machine.Event) {
	var buf [8]machine.Action
	for _, a := range e.m.Step(ucs.Now(), ev, buf[:0]) {
		e.do(a)
	}
	f := e.f
	if e.m.Deadline() != 0 && !e.timed {
		e.timed = true
		f.timed = append(f.timed, e)
	}
	if r := e.m.Remote(); r != 0 && !e.released {
		f.remotes[remote{e.peer.iface.name, r}] = e
	}
	for _, p := range e.pairs {
		p.settle()
	}
	if e.m.PeerEnded() {
		f.settleLater(e)
	}
}

func (e *ep) do(a machine.Action) {
	switch a.Kind {
	case machine.Make:
		p, err := e.f.makePair(e)
		if err != nil {
			e.f.failLater(e, err)
			return
		}
		p.id = a.Pair
		e.pairs = append(e.pairs, p)
	case machine.Join:
		if p := e.pair(a.Pair); p != nil {
			if err := p.join(e.heard, &e.peer.port); err != nil {
				e.f.failLater(e, fmt.Errorf("%w: connect queue pair: %w", ucs.ErrPeerFailed, err))
			}
		}
	case machine.Send:
		e.say(a.Msg)
	case machine.Read:
		e.readIn(a.Pair)
	case machine.Write:
		e.sendIn(a.Pair)
	case machine.Retire:
		e.retire(a.Pair)
	case machine.Ended:
		e.f.settleLater(e)
	case machine.Fail:
		e.failed(a.Reason)
	}
}

// failed is the machine's word that the connection is over.
func (e *ep) failed(r machine.Reason) {
	switch r {
	case machine.Stale:
		e.stale()
	case machine.Refused:
		e.f.failLater(e, fmt.Errorf("%w: it refused the connection", ucs.ErrUnreachable))
	case machine.PeerLost:
		e.f.failLater(e, failErr("it does not answer, or has lost the connection"))
	case machine.Broken:
		e.f.failLater(e, failErr("what it said about the connection does not fit"))
	}
}

// stale begins anew: nothing was sent or read by what the peer does not have any
// more.
func (e *ep) stale() {
	if !e.opened {
		e.f.failLater(e, errOrderly)
		return
	}
	for _, p := range e.pairs {
		e.f.linger(p)
	}
	e.pairs, e.out = nil, nil
	e.unname()
	e.name()
	e.gate()
	e.initiated = true
	if len(e.pend) > 0 {
		e.want()
	}
}

// say sends a message of the machine's.
func (e *ep) say(m machine.Msg) {
	n := note{msg: m, separate: e.separate && m.Kind == machine.Hello}
	if m.Half() {
		p := e.pair(m.Pair)
		if p == nil {
			return
		}
		n.half = p.mine
	}
	e.f.send(&n, &e.peer, e.ah)
}

// heardNote takes a connection message.
func (f *iface) heardNote(wc *verbs.WC) {
	buf := uint32(wc.ID)
	var n note
	if wc.Status == verbs.WCSuccess && wc.Len >= grhLen {
		if err := n.parse(f.ud.rx.Bytes(buf)[grhLen:wc.Len]); err != nil {
			f.stats.Inc(statGarbage)
			f.d.Log().Sugar().Debugf("dropped a connection message: %v", err)
		} else {
			f.hear(&n)
		}
	}
	f.ud.receive(buf)
}

// hear finds the connection that a message is about.
func (f *iface) hear(n *note) {
	name, m := n.from.iface.name, n.msg
	e := f.conns[m.To]
	if m.To == 0 {
		e = f.remotes[remote{name, m.From}]
	}
	if e != nil && e.peer.iface.name != name {
		return // of nobody's
	}
	if e == nil && m.To == 0 && m.Kind == machine.Hello {
		e = f.greeted(n)
	}
	if e == nil {
		f.stray(n)
		return
	}
	e.listen(n)
}

// stray answers a message about a connection that there is not, or not any more.
func (f *iface) stray(n *note) {
	a, ok := machine.Stray(f.worker, n.msg)
	if !ok {
		return
	}
	if ah, err := f.pd.CreateAH(n.from.port.AH(f.port)); err == nil {
		f.send(&note{msg: a}, &n.from, ah)
		_ = ah.Close() // what was posted goes out
	}
}

// greeted finds or makes the connection for the hello of a peer.
func (f *iface) greeted(n *note) *ep {
	if ok, _ := f.place.Reaches(&n.from.port); !ok {
		return nil
	}
	if !n.separate {
		for _, e := range f.byPeer[n.from.iface.name] {
			if e.m.State() == machine.Opening && !e.separate && e.dead == nil {
				f.stats.Inc(statCrossed)
				f.count(e)
				return e
			}
		}
	}
	e, err := f.newEP(&n.from)
	if err != nil {
		f.stats.Inc(statRefused)
		f.d.Log().Sugar().Warnf("refused a connection: %v", err)
		return nil
	}
	f.stats.Inc(statAccepted)
	f.count(e)
	return e
}

// count has the connection count as one that the peer may send by.
func (f *iface) count(e *ep) {
	if !e.counted {
		e.counted = true
		f.accepted++
	}
}

func (f *iface) uncount(e *ep) {
	if e.counted {
		e.counted = false
		f.accepted--
	}
}

// listen acts on a message of the peer's machine.
func (e *ep) listen(n *note) {
	ev := machine.Event{Kind: machine.Hear, Msg: n.msg, Busy: e.busy()}
	e.heard = n.half
	var brought *pair
	if e.m.Wants(n.msg) {
		p, err := e.f.makePair(e)
		if err == nil {
			p.id = n.msg.Pair.Flip()
			e.pairs = append(e.pairs, p)
			brought = p
			err = p.join(n.half, &e.peer.port)
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

// busy reports whether the connection is about to be used.
func (e *ep) busy() bool {
	return len(e.pend) > 0 || e.hasReserved || e.out != nil && e.out.head != e.out.tail
}

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
	}
	e.out = nil
	if p := e.pair(id); p != nil {
		e.out = &p.q
	}
	e.gate()
	if len(e.pend) > 0 && e.out == nil {
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
