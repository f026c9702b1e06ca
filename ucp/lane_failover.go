package ucp

import (
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// Lane failover: a connection may not be established because a device of either side has no
// room for another. Then the lane moves to the next best transport to the peer.
//
// Invariants: the lane keeps its index, so endpoints, keys, slots and rx connections still
// refer to it. Operations posted in the meantime keep their order: they move to a stalled
// endpoint in front of the new connection and resume behind the worker's address. No
// operation is carried out twice: uct.Failure.NeverConnected guarantees that nothing was sent on
// the old connection.
//
// A lane does not fail over while a peer's memory is read on it, or its own memory is
// exposed. Nor does it if a remote key on it has no emulation on the other transport.

// failedRoute is a route that a lane failed over from.
type failedRoute struct {
	iface uint32
	why   error
}

// rankLanes ranks the candidate lanes to peer, without those that a lane failed over from.
func (w *thread) rankLanes(peer wireup.PeerID, view wireup.View, wants ...wireup.Purpose) (wireup.Plan, []uct.Refusal) {
	plan, refused := wireup.Choose(w.locals, view, wants...)
	for i := w.laneOf[peer]; i != 0; i = w.lanes[i].next {
		for _, o := range w.lanes[i].failedRoutes {
			info := w.ifaces[o.iface].info
			refused = append(refused, uct.Refusal{Transport: info.Transport, Device: info.Device, Reason: o.why.Error()})
			for p := range plan {
				plan[p] = slices.DeleteFunc(plan[p], func(c wireup.Candidate) bool { return c.Local == int(o.iface) })
			}
		}
	}
	return plan, refused
}

// failOver reports whether lane i, whose connection failed with f, fails over to another
// transport. If so, it has moved the lane.
func (w *thread) failOver(i uint32, f uct.Failure) bool {
	l := &w.lanes[i]
	if !f.NeverConnected || f.Err == nil || errors.Is(f.Err, ErrPeerFailed) || l.state == laneFailed || l.uses > 0 || l.refs+l.replyRefs == 0 {
		return false
	}
	keys, ok := w.laneKeys(i)
	if !ok {
		return false
	}
	l.failedRoutes = append(l.failedRoutes, failedRoute{l.iface, f.Err})
	view := w.peers.View(l.peer)
	plan, _ := w.rankLanes(l.peer, view, wireup.ForAM)
	for _, c := range plan[wireup.ForAM] {
		wi := w.ifaces[c.Local]
		if w.laneTo(l.peer, uint32(c.Local)) != 0 || len(keys) > 0 && !carriesEmulation(wi) {
			continue
		}
		ep, err := wi.iface.NewEndpoint(view.Entries[c.Remote].Addr, 0)
		if err != nil {
			continue
		}
		w.ctx.log.Warn("a connection cannot be established; the lane fails over to another transport",
			zap.String("peer", shortID(view.Worker)), zap.String("from", w.laneName(i)), zap.String("to", wi.name()), zap.Error(f.Err))
		w.count.Inc(cntFailover)
		w.moveLane(i, ep, wi, view.Entries[c.Remote].Device)
		for _, k := range keys {
			w.emulateKey(k, c)
		}
		w.resumeMoved(i)
		return true
	}
	return false
}

// carriesEmulation reports whether active messages of p can carry emulated operations.
func carriesEmulation(wi *workerIface) bool {
	return wi.info.Kind == uct.DeviceNet && (&keyLane{iface: wi.iface.Attr()}).carriesEmulation()
}

// moveLane replaces the endpoint of lane i by ep, of iface context wi. The operations that wait on
// the old endpoint move to a stalled endpoint in front of ep.
func (w *thread) moveLane(i uint32, ep uct.Endpoint, wi *workerIface, domain uint8) {
	l := &w.lanes[i]
	old, from := l.transport(), w.ifaces[l.iface]
	var waiting []uct.Token
	l.ep.PendingPurge(func(t uct.Token) { waiting = append(waiting, t) })
	w.removeLane(i)
	l.setIface(wi, domain, w.rndvThresh)
	w.insertLane(i)
	h := l.stalledEp()
	if h == nil && l.emul != nil {
		h = l.emul.stalled
	}
	if h == nil {
		h = new(stalledEndpoint)
	}
	h.Endpoint, h.pending, h.numOlder, h.resuming = ep, waiting, 0, false
	l.ep = h
	l.setSlow(slowStalled, true)
	if l.emul != nil {
		l.emul.stalled = h
		l.emul.setTransport(wi, l)
	}
	wi.iface.Activate()
	old.Close()
	from.iface.Deactivate()
	w.refreshActive()
}

// resumeMoved resumes the operations on lane i, which was moved. The peer receives this worker's
// address before them. Pending messages with parts of the address are dropped, because
// their size fits the old transport.
func (w *thread) resumeMoved(i uint32) {
	l := &w.lanes[i]
	var others []uint32
	for k := l.pendingControl.Head; k != 0; {
		s := &w.slab.Slots[k]
		next := s.Next
		if uct.AMID(request.As[controlOp](s).id) == wire.Peer { // its size fits the old transport
			w.end(k, ucs.Canceled)
		} else {
			w.slab.Unlink(&l.pendingControl, k)
			others = append(others, k)
		}
		k = next
	}
	if !l.is(slowAddress) || l.emul != nil {
		l.setSlow(slowAddress, true)
		w.sendAddress(i)
	}
	for _, k := range others {
		w.slab.Push(&w.lanes[i].pendingControl, k)
	}
	w.tryResumeLane(i)
}

// laneKeys returns the keys that reach the peer's memory by lane i. ok is false if an
// operation on the lane cannot be emulated.
func (w *thread) laneKeys(i uint32) (ks []*keyLane, ok bool) {
	for n, c := range w.cold {
		if s := &w.eps[n]; !s.inUse || s.peer != w.lanes[i].peer {
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
		if !k.emulOnly && k.failoverKey == 0 {
			return nil, false
		}
	}
	return ks, !w.anyTransfer(i, func(s *request.Slot) bool { // operations of a key that was closed in the meantime
		return !slices.ContainsFunc(ks, func(k *keyLane) bool { return k.has(s) })
	})
}

// anyTransfer reports whether f returns true for a put, get or atomic in
// progress on lane i.
func (w *thread) anyTransfer(i uint32, f func(*request.Slot) bool) bool {
	return slices.ContainsFunc(w.slab.Slots, func(s request.Slot) bool { return transfersBy(&s, i) && f(&s) })
}

// transfersBy reports whether s is a put, get or atomic in progress on lane i.
func transfersBy(s *request.Slot, i uint32) bool {
	return s.State == request.StateLive && s.Op >= request.Put && s.Op <= request.Fetch && s.Lane == i
}

// has reports whether the operation in s uses k.
func (k *keyLane) has(s *request.Slot) bool {
	key := request.As[rmaOp](s).key
	return key == uint64(k.rkey) || key == uint64(k.emulKey)
}

// emulateKey converts k, and the operations posted with it, to emulation on the messages of
// its lane, which was moved to c.
func (w *thread) emulateKey(k *keyLane, c wireup.Candidate) {
	old := *k
	k.local, k.remote, k.iface = c.Local, c.Remote, w.ifaces[c.Local].iface.Attr()
	if !k.emulOnly {
		k.domain, k.attr, k.rkey, k.emulKey, k.emulOnly = nil, uct.KeyAttr{}, k.failoverKey, k.failoverKey, true
		w.emulLane(k.lane)
	}
	k.setEmulationLimits()
	for n := range w.slab.Slots {
		if s := &w.slab.Slots[n]; transfersBy(s, k.lane) && old.has(s) {
			w.emulateOp(uint32(n), k)
		}
	}
	if !old.emulOnly {
		old.domain.ReleaseKey(old.rkey)
	}
}

// emulateOp converts the operation in slot i, of which nothing was posted, to an emulated
// operation of k.
func (w *thread) emulateOp(i uint32, k *keyLane) {
	s := request.As[rmaOp](&w.slab.Slots[i])
	s.key = uint64(k.rkey)
	switch s.Op {
	case request.Put:
		s.form = formEmulated | k.put.pack()
	case request.Get:
		s.form = formEmulated | k.get.pack()
	default:
		s.form = s.form&^formBounced | formEmulated
		return
	}
	w.slab.detachMem(i)
}
