package ucp

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/platform"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// lane is one uct.Endpoint, shared by all Endpoints of the worker to the same peer. The
// fast paths read only its first fields. Lanes move in memory when more are opened.
//
// laneLife says how long a lane stays open, and when its fast path is.
type lane struct {
	ep uct.Endpoint
	laneLife

	maxBcopy      int    // longest message of one ReserveAM
	ifaceMaxShort int    // longest AMShort message of the iface
	maxEager      uint64 // longest message that is sent eagerly without flags
	maxHeapEager  uint64 // the same of a tag message, at most maxEager: a longer one arrives sooner if it is fetched
	maxAllocEager uint64 // the same of one in memory of Context.Allocate, at most maxHeapEager
	zcopy         zcopy  // limits of active messages without a copy
	first         uint32 // first lane of the same peer; 0: the lane is not in laneIndex
	numPeerLanes  uint32 // number of lanes of the same peer; 0: the lane is not in laneIndex
	iface         uint32 // index in Worker.ifaces
	next          uint32 // next lane of the same peer, by iface, or of the free list; 0: the last
	peer          wireup.PeerID
	domain        uint8  // of the peer's iface; the peer numbers its domains
	closeFlushed  bool   // the worker is closing and has posted the lane's flush
	acked         bool   // it failed, and the peer had acknowledged what the transport had accepted
	fenced        bool   // a fence was posted; it also orders operations on lanes opened later
	fragSeq       uint64 // fragmented messages begun
	err           error  // why it failed

	pendingControl request.Chain // control messages that got NoResource

	emul *emulEndpoint // emulated RMA and AMO; nil: not needed yet

	creditsUsed uint32        // credits in use; see lane_credit.go
	flushes     uint32        // number of flushes in open
	unacked     request.Chain // sends that the peer has to acknowledge, and flushes behind them

	failedRoutes []failedRoute // routes that failed before this one; see lane_failover.go
}

// quiet reports whether nothing is outstanding on the lane but what its transport's Flush and Fence
// cover. Both then complete without a slot, if the transport completes them at once.
func (l *lane) quiet() bool {
	return l.state == laneOpen && l.slow&slowStalled == 0 && l.pending == 0 && l.unacked.Head == 0 && l.emul == nil
}

// laneIndex has the first lane of each peer that has one. The others follow by lane.next,
// sorted by iface.
type laneIndex map[wireup.PeerID]uint32

// find returns the lane to peer over an iface, 0 if there is none. There is at most one.
func (x laneIndex) find(lanes []lane, peer wireup.PeerID, iface uint32) uint32 {
	i := x[peer]
	for i != 0 && lanes[i].iface != iface {
		i = lanes[i].next
	}
	return i
}

// insert inserts lane i into the list of its peer's lanes.
func (x laneIndex) insert(lanes []lane, i uint32) {
	l := &lanes[i]
	before := uint32(0)
	l.next = x[l.peer]
	for l.next != 0 && lanes[l.next].iface < l.iface {
		before, l.next = l.next, lanes[l.next].next
	}
	if before != 0 {
		lanes[before].next = i
	} else {
		x[l.peer] = i
	}
	x.renumber(lanes, l.peer)
}

// renumber updates first and numPeerLanes of the lanes to peer.
func (x laneIndex) renumber(lanes []lane, peer wireup.PeerID) {
	first, n := x[peer], uint32(0)
	for i := first; i != 0; i = lanes[i].next {
		n++
	}
	for i := first; i != 0; i = lanes[i].next {
		lanes[i].first, lanes[i].numPeerLanes = first, n
	}
}

// remove removes lane i from the list of its peer's lanes, if it is there. The next
// operation to the peer then opens a new lane.
func (x laneIndex) remove(lanes []lane, i uint32) {
	l := &lanes[i]
	before, at := uint32(0), x[l.peer]
	for at != 0 && at != i {
		before, at = at, lanes[at].next
	}
	switch {
	case at == 0:
		return
	case before != 0:
		lanes[before].next = l.next
	case l.next != 0:
		x[l.peer] = l.next
	default:
		delete(x, l.peer)
	}
	l.first, l.numPeerLanes, l.next = 0, 0, 0
	x.renumber(lanes, l.peer)
}

// openLane returns the lane to candidate c of the peer's address, which view describes, and
// adds a reference to it. It connects the lane if it does not exist.
func (w *thread) openLane(peer wireup.PeerID, view *wireup.View, c wireup.Candidate) (uint32, error) {
	if i := w.laneOf.find(w.lanes, peer, uint32(c.Local)); i != 0 {
		w.retainLane(i)
		return i, nil
	}
	wi := w.ifaces[c.Local]
	ep, err := wi.iface.NewEndpoint(view.Entries[c.Remote].Addr)
	if err != nil {
		return 0, fmt.Errorf("connect worker %s over %s: %w", shortID(view.Worker), wi.name(), err)
	}
	wi.iface.Activate()
	w.retainPeer(peer)
	i := w.laneFree
	if i != 0 {
		w.laneFree = w.lanes[i].next
	} else {
		i = uint32(len(w.lanes))
		w.lanes = append(w.lanes, lane{})
	}
	l := &w.lanes[i]
	*l = lane{ep: ep, laneLife: laneLife{slow: slowAddress}, peer: peer}
	l.setIface(wi, view.Entries[c.Remote].Device, w.rndvThresh.of(view.Host))
	w.enterLane(i, laneOpen)
	w.retainLane(i)
	w.laneOf.insert(w.lanes, i)
	w.polling.refreshActive(w.callbacks.pending())
	// The new lane obeys the earlier fences of the others.
	for k := w.laneOf[peer]; k != 0; k = w.lanes[k].next {
		if w.lanes[k].fenced {
			w.fenceMulti(peer)
			break
		}
	}
	return i, nil
}

// rndvThresh are the lengths in bytes of the longest messages that are sent eagerly: to peers on
// this host, and to others.
type rndvThresh struct{ intra, inter config.Optional[config.Bytes] }

// of returns the length for a peer on that host.
func (r rndvThresh) of(host [16]byte) config.Optional[config.Bytes] {
	if host == platform.HostID() {
		return r.intra
	}
	return r.inter
}

// setIface makes l a lane of an iface, to a peer's iface of this domain.
func (l *lane) setIface(wi *workerIface, domain uint8, thresh config.Optional[config.Bytes]) {
	a := wi.iface.Attr()
	rndvThresh, heap, alloc := eagerLimits(a, thresh)
	l.maxHeapEager, l.maxAllocEager = heap, alloc
	l.iface, l.domain = uint32(wi.index), domain
	l.ifaceMaxShort, l.maxBcopy, l.zcopy = a.AM.Short, a.AM.Bcopy, zcopyOf(a.AM)
	fast := int(min(uint64(a.AM.Short), rndvThresh))
	l.maxEager, l.tagFast, l.amFast = rndvThresh, int(min(uint64(fast), l.maxAllocEager)), fast
	if wi.t.ctx.features&FeatureTag == 0 {
		l.tagFast = -1
	}
	if wi.t.ctx.features&FeatureAM == 0 {
		l.amFast = -1
	}
	l.update()
}

// eagerLimits returns the lengths of the longest messages that are sent eagerly over an iface with attributes a: of
// messages as such, and of tag messages in memory of the program and in memory of Context.Allocate.
func eagerLimits(a *uct.IfaceAttr, thresh config.Optional[config.Bytes]) (limit, heap, alloc uint64) {
	limit = uint64(thresh.Or(autoRndvThresh))
	heap = limit
	if f := a.Fetch.Heap.From; thresh.Auto && f > 0 {
		heap = min(limit, uint64(f)-1)
	}
	alloc = heap
	if f := a.Fetch.Allocated.From; thresh.Auto && f > 0 {
		alloc = min(heap, uint64(f)-1)
	}
	return limit, heap, alloc
}

// MessagePath is how messages of some lengths get to a peer on this host, and why so.
type MessagePath struct {
	// Kind is "tag" or "am". Memory is that of the message: "heap", of the program, or "allocated", by Context.Allocate.
	Kind, Memory string
	// Min and Max are the lengths in bytes; math.MaxUint64: without bound.
	Min, Max uint64
	// Way and Reason are for people.
	Way, Reason string
}

// MessagePaths returns how messages get to a peer on this host, over an iface with attributes a: by kind, memory and
// ascending lengths. It returns nil for a transport whose peers do not fetch messages.
func MessagePaths(s *config.Set, a *uct.IfaceAttr) (paths []MessagePath) {
	if a.Fetch.Heap.Way == "" {
		return nil
	}
	thresh := rowRndvThresh.Get(s).Intra
	limit, heap, alloc := eagerLimits(a, thresh)
	general := ""
	for v := range s.All() {
		if v.Name == rowRndvThresh.Name() {
			general = fmt.Sprintf("%s%s=%s (%v)", config.Prefix, v.Name, v.Text, v.Origin)
		}
	}
	for _, m := range []struct {
		kind, memory string
		eager        uint64
		fetch        *uct.Fetch
	}{
		{"tag", "heap", heap, &a.Fetch.Heap},
		{"tag", "allocated", alloc, &a.Fetch.Allocated},
		{"am", "heap", min(max(heap, uint64(a.AM.Bcopy)), limit), &a.Fetch.Heap},
		{"am", "allocated", min(max(alloc, uint64(a.AM.Bcopy)), limit), &a.Fetch.Allocated},
	} {
		next, all := uint64(0), false
		upTo := func(last uint64, way, reason string) { // nothing if those before reach as far
			if !all && next <= last {
				paths = append(paths, MessagePath{m.kind, m.memory, next, last, way, reason})
				next, all = last+1, last == math.MaxUint64
			}
		}
		switch {
		case m.eager == limit:
			upTo(limit, "at once, through the ring", general)
		case m.kind == "am" && m.eager == uint64(a.AM.Bcopy):
			upTo(m.eager, "at once, through the ring", "it takes one piece")
		default:
			upTo(m.eager, "at once, through the ring", m.fetch.Setting)
		}
		if m.kind == "am" {
			upTo(limit, "copied by the receiver before its handler runs, if it can read all memory of this process; else at once, through the ring", general)
		}
		upTo(fetchMin-1, "when its receiver requests it, through the ring", "it arrives sooner so than by a copy between the processes")
		upTo(math.MaxUint64, m.fetch.Way, m.fetch.Reason)
	}
	return paths
}

// enterLane changes the state of lane i.
func (w *thread) enterLane(i uint32, s laneState) {
	l := &w.lanes[i]
	if l.state == laneDraining {
		w.numDraining--
	}
	if s == laneDraining {
		w.numDraining++
	}
	l.enter(s)
}

// retainLane adds a reference of an endpoint or a remote key to lane i. It ends a drain.
func (w *thread) retainLane(i uint32) {
	l := &w.lanes[i]
	if l.refs++; l.state == laneDraining {
		w.enterLane(i, laneOpen)
	}
}

// openBest opens the best lane for messages to peer and adds a reference to it. If there is
// none it returns 0 and the reasons of all transports. If a transport reports that the peer
// is dead it tries no other: those would wait for a reply until their time-out.
func (w *thread) openBest(peer wireup.PeerID) (uint32, []uct.Refusal) {
	view := w.peers.View(peer)
	plan, refused := w.rankLanes(peer, view, wireup.ForAM)
	for _, c := range plan[wireup.ForAM] {
		lane, err := w.openLane(peer, &view, c)
		if err == nil {
			w.logConfig(lane)
			w.sendAddress(lane)
			return lane, nil
		}
		i := w.locals[c.Local].Info
		refused = append(refused, uct.Refusal{Transport: i.Transport, Device: i.Device, Reason: err.Error()})
		if errors.Is(err, ErrPeerFailed) {
			break
		}
	}
	return 0, append(slices.Clone(w.refused), refused...)
}

// sendAddress sends this worker's address on lane i, so that the peer can reply, and
// opens the fast path.
func (w *thread) sendAddress(i uint32) {
	l := &w.lanes[i]
	if !l.is(slowAddress) || l.state == laneFailed {
		return
	}
	a := w.address
	if w.parent != nil {
		a = w.ifaces[l.iface].address
	}
	for n := min(len(a), l.maxBcopy); n > 0; n = min(len(a), l.maxBcopy) {
		w.control(i, control{id: wire.Peer, hdr: uint64(len(a) - n), text: a[:n]})
		a = a[n:]
	}
	w.lanes[i].setSlow(slowAddress, false)
}

// releaseLane drops a reference of an endpoint or a remote key. After the last one the lane
// closes, or drains.
func (w *thread) releaseLane(i uint32) {
	if w.lanes[i].unretain() {
		w.drainLane(i)
	}
}

// drainLane closes lane i, which has no references. The lane drains first if it is in use, if
// the peer has to receive operations of its pending queue, or if replies sent on it are not
// acknowledged. Closing it earlier would hide a lost reply, and the requester would hang.
func (w *thread) drainLane(i uint32) {
	l := &w.lanes[i]
	drains := l.uses > 0 || l.pending > 0 && l.state != laneFailed
	hasReply := func(rx *rxConn) bool { return rx != nil && rx.replyLane == i && rx.replySent }
	if !drains && !w.life.closing() && l.state != laneFailed && slices.ContainsFunc(w.rxConns, hasReply) {
		// A flush returns when the replies are acknowledged. It is a use of the lane.
		c := w.slab.Alloc(request.DrainLane)
		s := &w.slab.Slots[c]
		s.Lane, s.Flags = i, request.FlagReported
		w.lanes[i].use()
		st := w.try(c)
		if drains = st == ucs.InProgress; !drains {
			w.lanes[i].unuse()
			w.slab.release(c)
		}
		for _, rx := range w.rxConns {
			if !drains && st != ucs.OK && hasReply(rx) { // the connection has failed, which is not reported yet
				rx.leaveReplyLane()
			}
		}
	}
	if !drains {
		w.closeLane(i)
	} else if w.lanes[i].state == laneOpen {
		w.enterLane(i, laneDraining)
	}
}

// closeIfDrained closes a lane without references whose last use has ended.
func (w *thread) closeIfDrained(i uint32) {
	if l := &w.lanes[i]; l.unreferenced() && l.uses == 0 {
		w.drainLane(i)
	}
}

// closeLane closes lane i, which no endpoint and no key references, or whose worker
// closes. It completes what still waits on the lane: parts of flushes with the lane's
// status, all others with Canceled. If the lane has failed and a reply on it may be lost,
// it closes the rx connection, so that the peer's operation fails too. The completions may
// move the lanes and slots.
func (w *thread) closeLane(i uint32) {
	w.lanes[i].use() // the end of a read below must not close the lane a second time
	for _, rx := range w.rxConns {
		if rx == nil {
			continue
		}
		l := &w.lanes[i]
		over := slices.Contains(rx.oldReplyLanes, i) || l.state == laneFailed && !errors.Is(l.err, ErrPeerClosed)
		if rx.detachLane(i) && over { // no failure of this lane will be reported any more
			rx.iface.iface.Disconnect(rx.id)
		}
	}
	for k := uint32(1); int(k) < len(w.slab.Slots); k++ {
		// A part of a flush has nothing to wait for: it fails only if the lane failed.
		if s := &w.slab.Slots[k]; s.Op == request.Flush && s.State == request.StateLive && s.Lane == i && s.Flags&request.FlagChild != 0 {
			w.unlinkFlush(k)
			w.end(k, w.lanes[i].status())
		}
	}
	w.completeUnacked(i, ucs.Canceled)
	w.purgeLane(i, ucs.Canceled)
	w.endReported(i)
	for k := uint32(1); w.fences > 0 && int(k) < len(w.slab.Slots); k++ { // parts of fences
		if s := &w.slab.Slots[k]; s.Op == request.Fence && s.State == request.StateLive && s.Lane == i && s.Flags&request.FlagChild != 0 {
			w.end(k, ucs.Canceled)
		}
	}
	l := &w.lanes[i]
	ep, port := l.ep, w.ifaces[l.iface]
	w.laneOf.remove(w.lanes, i)
	w.releasePeer(l.peer)
	w.enterLane(i, laneClosed)
	*l = lane{laneLife: closedLane, next: w.laneFree}
	w.laneFree = i
	ep.Close()
	port.iface.Deactivate()
	w.polling.refreshActive(w.callbacks.pending())
}

// purgeLane completes the operations on the lane's pending queue with st.
func (w *thread) purgeLane(i uint32, st ucs.Status) {
	w.failEmulOps(i, st)
	w.lanes[i].ep.PendingPurge(func(t uct.Token) {
		if k := w.slab.Find(uint64(t)); k != 0 && w.slab.Slots[k].State == request.StateLive {
			w.end(k, w.flushStatus(k, st))
		}
	})
}

func (w *thread) laneName(i uint32) string {
	if i == 0 || int(i) >= len(w.lanes) || w.lanes[i].ep == nil {
		return ""
	}
	return w.ifaces[w.lanes[i].iface].name()
}

var drainOperation = operation{progress: (*thread).resumeDrain, complete: func(w *thread, i uint32, _ ucs.Status) bool {
	// The lane closes if nothing else keeps it open.
	lane := w.slab.Slots[i].Lane
	w.slab.release(i)
	w.lanes[lane].unuse()
	w.closeIfDrained(lane)
	return true
}}

func (w *thread) resumeDrain(i uint32) ucs.Status {
	l := &w.lanes[w.slab.Slots[i].Lane]
	if l.state == laneFailed {
		return l.status()
	}
	return l.transport().Flush(uct.FlushRemote, w.slab.Token(i))
}
