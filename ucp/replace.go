package ucp

import (
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// A lane whose connection cannot be made, because this side's device or the peer
// has no room for another, is replaced by the next best way to the peer. It stays
// the same lane to everything that names it; what was posted meanwhile goes by the
// other transport, in its order. Nothing can have gone out before: that is what
// uct.Failure.Unused says.

// passed is a way that a lane was replaced from.
type passed struct {
	port uint32
	why  error
}

// ways ranks the ways to peer, without those that a lane was replaced from.
func (w *Worker) ways(peer wireup.PeerID, view wireup.View, wants ...wireup.Purpose) (wireup.Plan, []uct.Refusal) {
	plan, refused := wireup.Choose(w.locals, view, wants...)
	for i := w.laneOf[peer]; i != 0; i = w.t.lanes[i].next {
		for _, o := range w.t.lanes[i].passed {
			info := w.ports[o.port].info
			refused = append(refused, uct.Refusal{Transport: info.Transport, Device: info.Device, Reason: o.why.Error()})
			for p := range plan {
				plan[p] = slices.DeleteFunc(plan[p], func(c wireup.Candidate) bool { return c.Local == int(o.port) })
			}
		}
	}
	return plan, refused
}

// replaces reports whether lane i, whose connection ended so, goes on by another
// transport.
func (w *Worker) replaces(i uint32, f uct.Failure) bool {
	l := &w.t.lanes[i]
	if !f.Unused || f.Err == nil || errors.Is(f.Err, ErrPeerFailed) || l.status != ucs.OK || l.reads+l.lent > 0 || l.refs+l.replies == 0 {
		return false
	}
	keys, ok := w.keysOf(i)
	if !ok {
		return false
	}
	l.passed = append(l.passed, passed{l.port, f.Err})
	view := w.peers.View(l.peer)
	plan, _ := w.ways(l.peer, view, wireup.ForAM)
	for _, c := range plan[wireup.ForAM] {
		p := w.ports[c.Local]
		if w.laneTo(l.peer, uint32(c.Local)) != 0 || len(keys) > 0 && !carriesSoftware(p) {
			continue
		}
		ep, err := p.iface.NewEndpoint(view.Entries[c.Remote].Addr, 0)
		if err != nil {
			continue
		}
		w.ctx.log.Warn("a connection cannot be made; another transport takes over",
			zap.String("peer", shortID(view.Worker)), zap.String("instead of", w.laneName(i)), zap.String("by", p.name()), zap.Error(f.Err))
		w.count.Inc(cntReplaced)
		w.moveLane(i, ep, p, view.Entries[c.Remote].Device)
		for _, k := range keys {
			w.bySoftware(k, c)
		}
		w.goOnBy(i)
		return true
	}
	return false
}

// carriesSoftware reports whether p's messages carry software operations.
func carriesSoftware(p *port) bool {
	return p.info.Kind == uct.DeviceNet && (&keyLane{iface: p.iface.Attr()}).messages()
}

// moveLane puts ep, of port to, under lane i, and has what waits there wait before
// it.
func (w *Worker) moveLane(i uint32, ep uct.Endpoint, to *port, domain uint8) {
	l := &w.t.lanes[i]
	old, from := l.transport(), w.ports[l.port]
	var waiting []uct.Token
	l.ep.PendingPurge(func(t uct.Token) { waiting = append(waiting, t) })
	w.forgetLane(i)
	a := to.iface.Attr()
	l.port, l.domain, l.whole, l.bcopy, l.zcopy = uint32(to.index), domain, a.AM.Short, a.AM.Bcopy, zcopyOf(a.AM)
	w.rememberLane(i)
	h := l.halted()
	if h == nil && l.sw != nil {
		h = l.sw.halt
	}
	if h == nil {
		h = new(haltedEndpoint)
	}
	h.Endpoint, h.waiting, h.older, h.open = ep, waiting, 0, false
	l.ep = h
	if l.sw != nil {
		l.sw.halt = h
		l.sw.suit(to, l)
	}
	to.iface.Activate()
	old.Close()
	from.iface.Deactivate()
	w.refreshActive()
}

// goOnBy has what waits on lane i, which was moved, go on. The peer hears first who
// sends.
func (w *Worker) goOnBy(i uint32) {
	l := &w.t.lanes[i]
	var others []uint32
	for k := l.urgent.head; k != 0; {
		s := &w.slab.slots[k]
		next := s.next
		if uct.AMID(s.parent) == amPeer { // in pieces for the other transport
			w.end(k, ucs.Canceled)
		} else {
			w.slab.unlink(&l.urgent, k)
			others = append(others, k)
		}
		k = next
	}
	if l.named || l.sw != nil {
		l.named = false
		w.introduce(i)
	}
	for _, k := range others {
		w.slab.push(&w.t.lanes[i].urgent, k)
	}
	w.swLift(i)
}

// keysOf lists what reaches a peer's memory by lane i; false: it could not do so by
// messages.
func (w *Worker) keysOf(i uint32) (ks []*keyLane, ok bool) {
	for n, c := range w.cold {
		if s := &w.eps[n]; !s.inUse || s.peer != w.t.lanes[i].peer {
			continue
		}
		for o := range c.owned {
			if key, isKey := o.(*RemoteKey); isKey {
				for _, k := range key.lanes() {
					if k.lane == i {
						ks = append(ks, k)
					}
				}
			}
		}
	}
	for _, k := range ks {
		if !k.swOnly && k.instead == 0 {
			return nil, false
		}
	}
	return ks, !w.anyTransfer(i, func(s *slot) bool { // of a key that was closed meanwhile
		return !slices.ContainsFunc(ks, func(k *keyLane) bool { return k.has(s) })
	})
}

// anyTransfer reports whether f is true of a put, get or atomic under way on lane i.
func (w *Worker) anyTransfer(i uint32, f func(*slot) bool) bool {
	return slices.ContainsFunc(w.slab.slots, func(s slot) bool { return s.transfersBy(i) && f(&s) })
}

// transfersBy reports whether s is a put, get or atomic under way on lane i.
func (s *slot) transfersBy(i uint32) bool {
	return s.state == slotLive && s.op >= opPut && s.op <= opFetch && s.lane == i
}

// has reports whether the operation in s is by k.
func (k *keyLane) has(s *slot) bool { return s.tag == uint64(k.rkey) || s.tag == uint64(k.sw) }

// bySoftware has k, and what was posted by it, go by messages of its lane, which was
// moved to c.
func (w *Worker) bySoftware(k *keyLane, c wireup.Candidate) {
	old := *k
	k.local, k.remote, k.iface = c.Local, c.Remote, w.ports[c.Local].iface.Attr()
	if !k.swOnly {
		k.domain, k.attr, k.rkey, k.sw, k.swOnly = nil, uct.KeyAttr{}, k.instead, k.instead, true
		w.swLane(k.lane)
	}
	k.limitSoftware()
	for n := range w.slab.slots {
		if s := &w.slab.slots[n]; s.transfersBy(k.lane) && old.has(s) {
			w.resort(uint32(n), k)
		}
	}
	if !old.swOnly {
		old.domain.ReleaseKey(old.rkey)
	}
}

// resort makes the operation in slot i, of which nothing was posted, one of k, by
// messages.
func (w *Worker) resort(i uint32, k *keyLane) {
	s := &w.slab.slots[i]
	s.tag = uint64(k.rkey)
	switch s.op {
	case opPut:
		s.aux = auxSoftware | k.put.pack()
	case opGet:
		s.aux = auxSoftware | k.get.pack()
	default:
		s.aux = s.aux&^auxBounced | auxSoftware
		return
	}
	w.slab.giveBack(i)
}
