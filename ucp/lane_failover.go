package ucp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// Lane failover. A device of either side may have no room for another connection, so that a
// lane cannot connect. Then the lane moves to the next best transport to the peer.
//
// Invariants:
//
//   - The lane keeps its index. Endpoints, keys, slots and rx connections still refer to it.
//   - No operation is carried out twice. uct.Failure.NeverConnected guarantees that nothing
//     was sent on the old connection.
//   - Operations posted in the meantime keep their order. They move to a stalled endpoint in
//     front of the new connection.
//   - The peer receives this worker's address first, as on every new connection. Then the
//     control messages follow, then the stalled operations.
//   - A failed route is not tried again for this peer (failedRoutes), also by lanes that are
//     opened later. So a lane fails over at most once to each transport.
//
// A lane does not fail over while it is in use: memory of the peer is read on it, or memory of
// this side is exposed to the peer under the old transport's key. Nor does it fail over if a
// remote key on it has no emulation on the other transport. Then the lane fails (failLane).

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
// transport. If so, it has moved the lane. Otherwise nothing but failedRoutes has changed, and
// the caller fails the lane.
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
		// The lane takes a transport that has no lane to the peer yet, because there is at most
		// one. The transport must emulate the operations of the lane's keys.
		wi := w.ifaces[c.Local]
		if w.laneOf.find(w.lanes, l.peer, uint32(c.Local)) != 0 || len(keys) > 0 && !carriesEmulation(wi) {
			continue
		}
		ep, err := wi.iface.NewEndpoint(view.Entries[c.Remote].Addr)
		if err != nil {
			continue
		}
		w.ctx.log.Warn("a connection cannot be established; the lane fails over to another transport",
			zap.String("peer", shortID(view.Worker)), zap.String("from", w.laneName(i)), zap.String("to", wi.name()), zap.Error(f.Err))
		w.count.Inc(cntFailover)

		// The operations that wait on the old endpoint move to a stalled endpoint in front of
		// the new one, in their order.
		old, from := l.transport(), w.ifaces[l.iface]
		var waiting []uct.Token
		l.ep.PendingPurge(func(t uct.Token) { waiting = append(waiting, t) })
		w.laneOf.remove(w.lanes, i)
		l.setIface(wi, view.Entries[c.Remote].Device, w.rndvThresh.of(view.Host))
		w.laneOf.insert(w.lanes, i)
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
		w.polling.refreshActive(w.callbacks.pending())

		// From here on the lane stalls every operation, so the order of the steps is not
		// visible to the peer. The keys come first: pending operations use them.
		for _, k := range keys {
			k.emulate(w, c)
		}
		// The peer receives this worker's address first. Pending messages with parts of the
		// address are dropped, because their size fits the old transport. The other control
		// messages wait aside meanwhile, since the queue is in order.
		l = &w.lanes[i]
		var others []uint32
		for k := l.pendingControl.Head; k != 0; {
			s := &w.slab.Slots[k]
			next := s.Next
			if uct.AMID(request.As[controlOp](s).id) == wire.Peer {
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
		w.logConfig(i)
		w.tryResumeLane(i)
		return true
	}
	return false
}

// logConfig logs the lanes to the peer of lane i, which carries messages, at level info and in
// the form of UCX: once for each configuration of lanes that the worker uses. At level debug it
// logs for each endpoint how the lanes were chosen.
func (w *thread) logConfig(i uint32) {
	log := w.ctx.log
	if !log.Core().Enabled(zapcore.InfoLevel) {
		return
	}
	peer := w.lanes[i].peer
	view := w.peers.View(peer)
	plan, refused := w.rankLanes(peer, view, wireup.ForAM, wireup.ForRMA, wireup.ForAMO)
	var lanes []string
	for _, f := range featureNames {
		if w.ctx.features&f.feature == 0 {
			continue
		}
		name := w.laneName(i) // which also carries what no transport has, by emulation
		if c, ok := plan.Best(f.purpose); ok && f.purpose != wireup.ForAM {
			name = w.ifaces[c.Local].name()
		}
		lanes = append(lanes, f.name+"("+name+")")
	}
	text := strings.Join(lanes, " ")
	n := slices.Index(w.configs, text)
	if n < 0 {
		n = len(w.configs)
		w.configs = append(w.configs, text)
		log.Info(fmt.Sprintf("ep_cfg[%d]: %s", n, text))
	}
	if !log.Core().Enabled(zapcore.DebugLevel) {
		return
	}
	name := shortID(view.Worker)
	log.Debug(fmt.Sprintf("endpoint to worker %s: ep_cfg[%d]", name, n))
	for p := range wireup.NumPurposes {
		if ranked := plan.Ranking(p, w.locals); ranked != "" {
			log.Debug(fmt.Sprintf("endpoint to worker %s: %s", name, ranked))
		}
	}
	for _, r := range slices.Concat(w.refused, refused) {
		log.Debug(fmt.Sprintf("endpoint to worker %s: not used: %s", name, r))
	}
}

// carriesEmulation reports whether active messages of an iface can carry emulated operations.
func carriesEmulation(wi *workerIface) bool {
	return wi.info.Kind == uct.DeviceNet && (&keyLane{iface: wi.iface.Attr()}).carriesEmulation()
}

// laneKeys returns the keys that reach the peer's memory by lane i. ok is false if an
// operation on the lane cannot be emulated. That is so if its key has no emulation, or was
// closed while the operation was in progress.
func (w *thread) laneKeys(i uint32) (ks []*keyLane, ok bool) {
	for n, c := range w.cold {
		if s := &w.eps[n]; s.state == epFree || s.peer != w.lanes[i].peer {
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
	return ks, !slices.ContainsFunc(w.slab.Slots, func(s request.Slot) bool {
		return transfersBy(&s, i) && !slices.ContainsFunc(ks, func(k *keyLane) bool { return k.has(&s) })
	})
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

// emulate converts k, and the operations posted with it, to emulation on the messages of
// its lane, which was moved to c.
func (k *keyLane) emulate(w *thread, c wireup.Candidate) {
	old := *k
	k.local, k.remote, k.iface = c.Local, c.Remote, w.ifaces[c.Local].iface.Attr()
	if !k.emulOnly {
		k.domain, k.attr, k.rkey, k.emulKey, k.emulOnly = nil, uct.KeyAttr{}, k.failoverKey, k.failoverKey, true
		w.emulLane(k.lane)
	}
	k.setEmulationLimits()
	for n := range w.slab.Slots {
		if s := &w.slab.Slots[n]; !transfersBy(s, k.lane) || !old.has(s) {
			continue
		}
		// Nothing of the operation was posted. So it becomes an emulated operation of k.
		s := request.As[rmaOp](&w.slab.Slots[n])
		s.key = uint64(k.rkey)
		switch s.Op {
		case request.Put:
			s.form = formEmulated | k.put.pack()
			w.slab.detachMem(uint32(n))
		case request.Get:
			s.form = formEmulated | k.get.pack()
			w.slab.detachMem(uint32(n))
		default:
			s.form = s.form&^formBounced | formEmulated
		}
	}
	if !old.emulOnly {
		old.domain.ReleaseKey(old.rkey)
	}
}
