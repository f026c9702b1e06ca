package shm

import (
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

const (
	// growAfter refusals for want of room within growWithin make a ring grow.
	growAfter  = 16
	growWithin = 100 * time.Millisecond
	// declinePause is how long nothing is offered to a peer that declined, for
	// want of memory or descriptors, or since it has yet to read what came before.
	declinePause = 2 * time.Millisecond
)

// noRoom refuses a message of n bytes. A connection that sleeps is woken, and one
// that refuses often grows.
//
//go:noinline
func (e *ep) noRoom(n int) uct.Status {
	e.f.stats.Inc(statNoResource)
	e.need = n
	if e.full++; e.full >= growAfter || e.sends == machine.None {
		e.want()
	}
	return ucs.NoResource
}

// want has service look at what the connection needs.
func (e *ep) want() {
	f := e.f
	if !e.wants && e.m.State() == machine.Open {
		e.wants = true
		f.wanting = append(f.wanting, e)
		f.look()
	}
}

// pause keeps the connection from offering for a while.
func (e *ep) pause(d time.Duration) { e.paused = ucs.Now().Add(d) }

// declined has an offer made again later where messages wait for it.
func (e *ep) declined() {
	e.pause(declinePause)
	if e.m.Out() == machine.None && e.pend.Len() > 0 {
		e.want()
	}
}

// serveWants wakes and grows connections.
func (f *iface) serveWants(now ucs.Time) {
	es := f.wanting
	f.wanting, f.served = f.served[:0], es
	for _, e := range es {
		if e.dead != nil || e.released || e.status != ucs.OK {
			e.wants = false
			continue
		}
		if !f.serveWant(e, now) {
			f.wanting = append(f.wanting, e)
			continue
		}
		e.wants = false
	}
	clear(es)
}

// serveWant reports false where the connection must be looked at again.
func (f *iface) serveWant(e *ep, now ucs.Time) bool {
	switch {
	case e.m.Out() == machine.None && e.m.State() == machine.Open:
		if e.m.Offering() {
			return true // the answer comes by the socket
		}
		if now >= e.paused {
			e.propose(machine.Wake, f.layout)
		}
		return e.m.Offering()
	case e.full < growAfter:
		return true
	case now.Sub(e.fullAt) > growWithin: // not often enough: count anew
		e.full, e.fullAt = 0, now
		return true
	}
	e.full, e.fullAt = 0, now
	if l, ok := e.larger(); ok && now >= e.paused && e.m.MayGrow() {
		e.propose(machine.Grow, l)
	}
	return true
}

// larger is the geometry that the connection grows to next.
func (e *ep) larger() (ring.Layout, bool) {
	p := e.pair(e.m.Out())
	if p == nil {
		return ring.Layout{}, false
	}
	size := min(2*p.layout.Size(), e.f.largest)
	l := ring.Fit(size, min(2*p.layout.Cells, maxCells))
	return l, l.Cells > p.layout.Cells && l.MaxBulk() >= p.layout.MaxBulk() && l.Check() == nil
}

// propose has the machine offer a pair of that geometry.
func (e *ep) propose(k machine.EventKind, l ring.Layout) {
	if l.MaxBulk() < e.maxBulk {
		l = ring.Layout{Cells: l.Cells, Bulk: e.bulkFor()}
	}
	p, err := makePair(l)
	if err != nil {
		e.f.d.logf("make a pair", err)
		e.pause(declinePause)
		return
	}
	e.spare = p
	e.step(machine.Event{Kind: k})
	if e.spare != nil { // it does not want to
		_ = e.spare.seg.Close()
		e.spare = nil
	}
}

// bulkFor is a bulk area that takes the longest message of the connection, whose
// pairs may have been the peer's with greater ones than ours.
func (e *ep) bulkFor() int {
	b := minBulk
	for (ring.Layout{Bulk: b}).MaxBulk() < e.maxBulk {
		b += ring.CellSize
	}
	return b
}
