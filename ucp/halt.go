package ucp

import (
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// haltedEndpoint stands before the endpoint of a lane that must send nothing
// until software operations were answered, because there are too many, or
// because a fence stands between them and operations that the transport's device
// would carry out at once, or between operations by another lane and its own, or until
// a send gets a credit (sends.go). What is posted meanwhile waits as for a transport
// without resources, except for what passes.
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
	sw := w.swLane(i)
	h := sw.halt
	if h == nil {
		h = &haltedEndpoint{Endpoint: l.ep}
		sw.halt = h
	}
	h.open, h.older = false, 0
	l.ep = h
	w.gateKeys(i)
}

// swLift lets lane i go on where all that it waits for has come.
func (w *Worker) swLift(i uint32) {
	l := &w.t.lanes[i]
	h := l.halted()
	if h == nil || h.open || l.starved || l.sw.halts() || l.status != ucs.OK {
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

// holdBack moves t, which a transport offers and whose lane is halted, to the halted
// endpoint, before what was posted since. An operation that passes goes to the end of
// the transport's queue: there is nothing else left in it then that could overtake
// what the halted endpoint holds. holdBack returns false where the transport keeps t.
func (w *Worker) holdBack(t uct.Token) bool {
	i := w.slab.find(uint64(t))
	if i == 0 {
		return false
	}
	h := w.t.lanes[w.slab.slots[i].lane].halted()
	switch {
	case h == nil || h.open:
		return false
	case w.slab.slots[i].passes():
		return h.Endpoint.PendingAdd(t) == ucs.OK
	}
	h.waiting = slices.Insert(h.waiting, h.older, t)
	h.older++
	return true
}

// passes reports whether the operation in s goes by a halted lane: the peer needs it to
// answer, or asked for it, or it is a flush that has had its place among the lane's
// operations.
func (s *slot) passes() bool {
	switch s.op {
	case opControl, opRead, opHold:
		return true
	case opFlush:
		return s.arg != flushNew
	default:
		return s.op.sends() && s.phase() == phaseData
	}
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
