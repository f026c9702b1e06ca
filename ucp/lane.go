package ucp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// lane is one uct.Endpoint, shared by all Endpoints to the same worker. The
// first fields are what the fast paths read. Lanes move when more are opened.
type lane struct {
	ep    uct.Endpoint
	short int // longest message sent by AMShort; -1: use the slow half
	bcopy int // longest message of one ReserveAM

	whole   int    // what short is while nothing stands against it
	zcopy   zcopy  // active messages sent without a copy
	port    uint32 // index in Worker.ports
	next    uint32 // of the peer's lanes, by their ports, or of the free; 0: the last
	peer    wireup.PeerID
	domain  uint8  // of the peer's iface, as he numbers them
	refs    int    // endpoints and keys that hold it
	replies int    // sources that answer by it
	reads   int    // of the peer's memory, under way
	lent    int    // sends whose memory the peer reads
	queued  int    // operations on its pending queue
	sent    uint64 // messages in fragments begun
	status  ucs.Status
	err     error // why it failed

	named     bool  // the peer was told who sends
	lingers   bool  // nobody holds it, but something is to go out
	parted    bool  // nobody holds it, but memory is being read
	closes    bool  // its worker closes and has flushed it
	fenced    bool  // a fence was made: it is before what goes by lanes opened later, too
	throttled bool  // the peer wants everything to be announced
	starved   bool  // it is halted until a send gets a credit; see sends.go
	urgent    chain // control messages that found no room

	sw *swEndpoint // for what the transport does not do; nil: not needed yet

	used    uint32 // credits
	flushes uint32 // in open
	open    chain  // sends that the peer has to answer, and flushes behind them

	passed []passed // ways that it was replaced from
}

// laneTo is the lane to peer over a port, or 0: there is one at most.
func (w *Worker) laneTo(peer wireup.PeerID, port uint32) uint32 {
	i := w.laneOf[peer]
	for i != 0 && w.t.lanes[i].port != port {
		i = w.t.lanes[i].next
	}
	return i
}

// openLane gives the lane to candidate c of peer's address, which view shows,
// and counts a reference to it.
func (w *Worker) openLane(peer wireup.PeerID, view *wireup.View, c wireup.Candidate) (uint32, error) {
	if i := w.laneTo(peer, uint32(c.Local)); i != 0 {
		l := &w.t.lanes[i]
		if l.lingers {
			l.lingers = false
			w.lingering--
		}
		l.parted = false
		l.refs++
		return i, nil
	}
	p := w.ports[c.Local]
	ep, err := p.iface.NewEndpoint(view.Entries[c.Remote].Addr, 0)
	if err != nil {
		return 0, fmt.Errorf("connect worker %s over %s: %w", shortID(view.Worker), p.name(), err)
	}
	p.iface.Activate()
	w.peers.Retain(peer)
	a := p.iface.Attr()
	l := lane{ep: ep, port: uint32(c.Local), peer: peer, domain: view.Entries[c.Remote].Device, refs: 1, short: -1, whole: a.AM.Short, bcopy: a.AM.Bcopy, zcopy: zcopyOf(a.AM)}
	i := w.freeLane()
	w.t.lanes[i] = l
	w.rememberLane(i)
	w.refreshActive()
	w.fenceLate(peer)
	return i, nil
}

// rememberLane puts a lane among those of its peer.
func (w *Worker) rememberLane(i uint32) {
	l := &w.t.lanes[i]
	before, after := uint32(0), w.laneOf[l.peer]
	for after != 0 && w.t.lanes[after].port < l.port {
		before, after = after, w.t.lanes[after].next
	}
	l.next = after
	w.linkLane(l.peer, before, i)
}

// linkLane makes i what follows before, one of peer's lanes, or the first where
// before is 0.
func (w *Worker) linkLane(peer wireup.PeerID, before, i uint32) {
	switch {
	case before != 0:
		w.t.lanes[before].next = i
	case i != 0:
		w.laneOf[peer] = i
	default:
		delete(w.laneOf, peer)
	}
}

func (w *Worker) freeLane() uint32 {
	if i := w.laneFree; i != 0 {
		w.laneFree = w.t.lanes[i].next
		return i
	}
	w.t.lanes = append(w.t.lanes, lane{short: -1})
	return uint32(len(w.t.lanes) - 1)
}

// openBest opens the best lane for messages to peer and counts a reference to
// it. It gives 0 and every reason where there is none. A transport that knows that
// the peer is gone speaks for all: others would wait for an answer in vain.
func (w *Worker) openBest(peer wireup.PeerID) (uint32, []uct.Refusal) {
	view := w.peers.View(peer)
	plan, refused := w.ways(peer, view, wireup.ForAM)
	for _, c := range plan[wireup.ForAM] {
		lane, err := w.openLane(peer, &view, c)
		if err == nil {
			w.introduce(lane)
			return lane, nil
		}
		i := w.locals[c.Local].Info
		refused = append(refused, uct.Refusal{Transport: i.Transport, Device: i.Device, Reason: err.Error()})
		if errors.Is(err, ErrPeerFailed) {
			break
		}
	}
	return 0, append(w.Refused(), refused...)
}

// introduce tells the peer who sends by lane i, so that he can answer, and opens
// the fast paths.
func (w *Worker) introduce(i uint32) {
	l := &w.t.lanes[i]
	if l.named || l.status != ucs.OK {
		return
	}
	l.named = true
	a := w.address
	for n := min(len(a), l.bcopy); n > 0; n = min(len(a), l.bcopy) {
		w.control(i, control{id: amPeer, hdr: uint64(len(a) - n), text: a[:n]})
		a = a[n:]
	}
	w.gate(i)
}

// gate says anew what the fast paths may send by lane i.
func (w *Worker) gate(i uint32) {
	l := &w.t.lanes[i]
	l.short = -1
	if l.named && l.status == ucs.OK && !l.throttled {
		l.short = int(min(uint64(l.whole), w.rndvThresh))
	}
}

// releaseLane drops a reference; the last one closes the lane.
func (w *Worker) releaseLane(i uint32) {
	if l := &w.t.lanes[i]; l.refs > 1 {
		l.refs--
	} else {
		l.refs = 0
		w.partLane(i)
	}
}

// partLane closes a lane that nobody holds any more, when it has done what is
// begun.
func (w *Worker) partLane(i uint32) {
	switch l := &w.t.lanes[i]; {
	case l.reads+l.lent > 0:
		l.parted = true
	case l.queued > 0 && l.status == ucs.OK:
		l.lingers = true // what waits is of nobody's endpoint: the peer has to hear it
		w.lingering++
	case w.holdForAnswers(i):
		l.parted = true
	default:
		w.closeLane(i)
	}
}

// readOver closes a lane that nobody holds when the last reading has ended.
func (w *Worker) readOver(i uint32) {
	if l := &w.t.lanes[i]; l.parted && l.reads+l.lent == 0 {
		l.parted = false
		w.partLane(i)
	}
}

// endLingering closes the lanes that nobody holds and nothing waits on any more.
//
//go:noinline
func (w *Worker) endLingering() {
	for i := range w.t.lanes {
		if l := &w.t.lanes[i]; l.lingers && l.queued == 0 && l.reads+l.lent == 0 {
			l.lingers = false
			w.lingering--
			w.partLane(uint32(i))
		}
	}
}

func (w *Worker) closeLane(i uint32) {
	l := &w.t.lanes[i]
	l.parted = false // so that the end of a read below does not close it a second time
	if l.lingers {
		l.lingers = false
		w.lingering--
	}
	for _, s := range w.sources {
		if s == nil {
			continue
		}
		l := &w.t.lanes[i]
		over := slices.Contains(s.left, i) || l.status != ucs.OK && !errors.Is(l.err, errHungUp)
		if s.unreplied(i) && over { // this is not reported now
			s.port.iface.Disconnect(s.id)
		}
	}
	w.endFlushes(i)
	w.endSends(i, ucs.Canceled)
	w.purgeLane(i, ucs.Canceled)
	w.endReported(i)
	w.endFences(i)
	l = &w.t.lanes[i]
	ep, port := l.ep, w.ports[l.port]
	w.forgetLane(i)
	w.peers.Release(l.peer)
	w.t.lanes[i] = lane{short: -1, next: w.laneFree}
	w.laneFree = i
	ep.Close()
	port.iface.Deactivate()
	w.refreshActive()
}

// forgetLane makes the next operation towards the peer open a new lane.
func (w *Worker) forgetLane(i uint32) {
	l := &w.t.lanes[i]
	before, at := uint32(0), w.laneOf[l.peer]
	for at != 0 && at != i {
		before, at = at, w.t.lanes[at].next
	}
	if at != 0 {
		w.linkLane(l.peer, before, l.next)
		l.next = 0
	}
}

// purgeLane ends with st what waits on the lane's pending queue.
func (w *Worker) purgeLane(i uint32, st ucs.Status) {
	w.swLost(i, st)
	w.t.lanes[i].ep.PendingPurge(func(t uct.Token) {
		if k := w.slab.find(uint64(t)); k != 0 && w.slab.slots[k].state == slotLive {
			w.end(k, st)
		}
	})
}

func (w *Worker) laneName(i uint32) string {
	if i == 0 || int(i) >= len(w.t.lanes) || w.t.lanes[i].ep == nil {
		return ""
	}
	return w.ports[w.t.lanes[i].port].name()
}
