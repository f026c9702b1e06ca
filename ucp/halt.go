package ucp

import (
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// haltedEndpoint stands before the endpoint of a lane that must send nothing
// until software operations were answered, because there are too many, or
// because a fence stands between them and operations that the transport's device
// would carry out at once, or between operations by another lane and its own. What
// is posted meanwhile waits as for a transport without resources. Control messages
// pass it: the peer may need them to answer.
type haltedEndpoint struct {
	uct.Endpoint // the transport's
	waiting      []uct.Token
	older        int  // so many of waiting, its first ones, had been with the transport
	open         bool // what waits goes on, and everything passes
	one          [1]uct.Token
}

// transport is the lane's endpoint of its transport.
func (l *lane) transport() uct.Endpoint {
	if h, ok := l.ep.(*haltedEndpoint); ok {
		return h.Endpoint
	}
	return l.ep
}

// halted gives what stands before the lane's endpoint, nil where nothing does.
func (l *lane) halted() *haltedEndpoint {
	h, _ := l.ep.(*haltedEndpoint)
	return h
}

// haltLane halts lane i, whose transport has an empty pending queue or offers it
// right now.
func (w *Worker) haltLane(i uint32) {
	l := &w.t.lanes[i]
	if h := l.halted(); h != nil {
		if h.open {
			h.open, h.older = false, 0
		}
		return
	}
	h := l.sw.halt
	if h == nil {
		h = &haltedEndpoint{Endpoint: l.ep}
		l.sw.halt = h
	}
	h.open, h.older = false, 0
	l.ep = h
	w.gateKeys(i)
}

// swLift lets lane i go on where all that it waits for has come.
func (w *Worker) swLift(i uint32) {
	l := &w.t.lanes[i]
	h := l.halted()
	if h == nil || h.open || l.sw.halts() || l.status != ucs.OK {
		return
	}
	h.open = true
	nested := w.resuming
	w.resuming = true
	k := w.goOn(i, h)
	w.resuming = nested
	h.waiting = append(h.waiting[:0], h.waiting[k:]...)
	if h.open && w.t.lanes[i].halted() == h {
		w.t.lanes[i].ep = h.Endpoint
		w.gateKeys(i)
	}
}

// halts reports whether the lane has to wait.
func (e *swEndpoint) halts() bool {
	return e != nil && (e.waits >= swMaxWaits || e.handled < e.until || e.fence != 0)
}

// goOn has what waits at h go on, or wait with the transport, and what stands behind
// that too: a flush would not. It stops where lane i is halted anew, or has ended, and
// gives how many went.
func (w *Worker) goOn(i uint32, h *haltedEndpoint) (k int) {
	p, behind := w.ports[w.t.lanes[i].port], false
	for k < len(h.waiting) && h.open && w.t.lanes[i].halted() == h {
		h.one[0] = h.waiting[k]
		if !behind && p.resume(h.one[:]) == 1 {
			k++
			continue
		}
		if !h.open {
			break
		}
		switch st := h.Endpoint.PendingAdd(h.waiting[k]); st {
		case ucs.Busy:
			behind = false
		case ucs.OK:
			behind = true
			k++
		default:
			t := h.waiting[k]
			k++
			if n := w.slab.find(uint64(t)); n != 0 && w.slab.slots[n].state == slotLive {
				w.end(n, st)
			}
		}
	}
	return k
}

// holdBack has what a transport offers, all of one lane, wait here where the lane
// was halted, before what was posted since. It reports whether it did. While control
// messages wait for room the transport has to offer it again.
func (w *Worker) holdBack(ts []uct.Token) bool {
	i := w.slab.find(uint64(ts[0]))
	if i == 0 {
		return false
	}
	l := &w.t.lanes[w.slab.slots[i].lane]
	h := l.halted()
	if h == nil || h.open || l.urgent.head != 0 {
		return false
	}
	h.waiting = slices.Insert(h.waiting, h.older, ts...)
	h.older += len(ts)
	return true
}

// gateKeys says anew what the fast paths of keys may do that use lane i.
func (w *Worker) gateKeys(i uint32) {
	if w.t.locked {
		return // they are closed
	}
	peer := w.t.lanes[i].peer
	for k := range w.eps {
		if s := &w.eps[k]; !s.inUse || s.peer != peer || w.cold[uint32(k)] == nil {
			continue
		}
		for c := range w.cold[uint32(k)].owned {
			if key, ok := c.(*RemoteKey); ok {
				key.closeFast()
				key.openFast()
			}
		}
	}
}
