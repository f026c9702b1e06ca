package ucp

import (
	"fmt"

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

	port   uint32 // index in Worker.ports
	peer   wireup.PeerID
	refs   int    // endpoints and keys that hold it; 0: free
	queued int    // operations on its pending queue
	sent   uint64 // messages in fragments begun
	status ucs.Status
	err    error // why it failed
}

// laneKey finds a lane: there is one per peer and iface.
type laneKey struct {
	peer wireup.PeerID
	port uint32
}

// openLane gives the lane to candidate c of peer's address, which view shows,
// and counts a reference to it.
func (w *Worker) openLane(peer wireup.PeerID, view *wireup.View, c wireup.Candidate) (uint32, error) {
	key := laneKey{peer, uint32(c.Local)}
	if i, ok := w.laneAt[key]; ok {
		w.t.lanes[i].refs++
		return i, nil
	}
	p := w.ports[c.Local]
	ep, err := p.iface.NewEndpoint(view.Entries[c.Remote].Addr, 0)
	if err != nil {
		return 0, fmt.Errorf("connect worker %s over %s: %w", shortID(view.Worker), p.name(), err)
	}
	p.iface.Activate()
	a := p.iface.Attr()
	l := lane{ep: ep, port: key.port, peer: peer, refs: 1, short: a.AM.Short, bcopy: a.AM.Bcopy}
	i := w.freeLane()
	w.t.lanes[i] = l
	w.laneAt[key] = i
	w.refreshActive()
	return i, nil
}

func (w *Worker) freeLane() uint32 {
	for i := 1; i < len(w.t.lanes); i++ {
		if w.t.lanes[i].ep == nil {
			return uint32(i)
		}
	}
	w.t.lanes = append(w.t.lanes, lane{short: -1})
	return uint32(len(w.t.lanes) - 1)
}

// releaseLane drops a reference; the last one closes the lane.
func (w *Worker) releaseLane(i uint32) {
	l := &w.t.lanes[i]
	if l.refs--; l.refs > 0 {
		return
	}
	w.purgeLane(i, ucs.Canceled)
	l = &w.t.lanes[i]
	ep, port := l.ep, w.ports[l.port]
	w.forgetLane(i)
	w.t.lanes[i] = lane{short: -1}
	ep.Close()
	port.iface.Deactivate()
	w.refreshActive()
}

// forgetLane makes the next operation towards the peer open a new lane.
func (w *Worker) forgetLane(i uint32) {
	l := &w.t.lanes[i]
	if key := (laneKey{l.peer, l.port}); w.laneAt[key] == i {
		delete(w.laneAt, key)
	}
}

// purgeLane ends with st what waits on the lane's pending queue.
func (w *Worker) purgeLane(i uint32, st ucs.Status) {
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
