package shm

import (
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

const (
	// A ring grows after growAfter sends within growWithin were refused for lack of room.
	growAfter  = 16
	growWithin = 100 * time.Millisecond
	// declinePause is the time without MIGRATE after a MIGRATE_NAK. The peer lacks
	// memory or descriptors, or has not read all messages in its previous ring pair.
	declinePause = 2 * time.Millisecond
)

// noRoom records a refused message of n bytes and returns NoResource. It requests a ring
// pair if the connection is suspended or has refused sends often.
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

// want makes service check whether the connection needs another ring pair.
func (e *ep) want() {
	f := e.f
	if !e.wants && e.m.State() == machine.StateOpen {
		e.wants = true
		f.wanting = append(f.wanting, e)
		f.look()
	}
}

// pause sends no MIGRATE for duration d.
func (e *ep) pause(d time.Duration) { e.paused = ucs.Now().Add(d) }

// declined handles MIGRATE_NAK. It retries later if operations are pending.
func (e *ep) declined() {
	e.pause(declinePause)
	if e.m.TxPair() == machine.None && e.pend.Len() > 0 {
		e.want()
	}
}

// serveWants resumes and grows connections that requested a ring pair.
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

// serveWant resumes or grows e. It returns false if service must check e again.
func (f *iface) serveWant(e *ep, now ucs.Time) bool {
	switch {
	case e.m.TxPair() == machine.None && e.m.State() == machine.StateOpen:
		if e.m.Migrating() {
			return true // the socket reports the peer's response
		}
		if now >= e.paused {
			e.propose(machine.EventResume, f.layout)
		}
		return e.m.Migrating()
	case e.full < growAfter:
		return true
	case now.Sub(e.fullAt) > growWithin: // too few in this time: restart the count
		e.full, e.fullAt = 0, now
		return true
	}
	e.full, e.fullAt = 0, now
	if l, ok := e.larger(); ok && now >= e.paused && e.m.CanMigrate() {
		e.propose(machine.EventMigrate, l)
	}
	return true
}

// larger returns the geometry to which the connection grows next: twice the size. ok is
// false if the ring has its maximum size.
func (e *ep) larger() (ring.Layout, bool) {
	p := e.pair(e.m.TxPair())
	if p == nil {
		return ring.Layout{}, false
	}
	size := min(2*p.layout.Size(), e.f.largest)
	l := ring.Fit(size, min(2*p.layout.Cells, maxCells))
	return l, l.Cells > p.layout.Cells && l.MaxBulk() >= p.layout.MaxBulk() && l.Check() == nil
}

// propose makes a ring pair with geometry l and passes event k to the machine, which
// sends MIGRATE.
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
	if e.spare != nil { // the machine does not migrate now
		_ = e.spare.seg.Close()
		e.spare = nil
	}
}

// bulkFor returns the size of the smallest bulk area that holds the connection's longest
// message. It may exceed that of this iface's layout if the peer made the first ring pair.
func (e *ep) bulkFor() int {
	b := minBulk
	for (ring.Layout{Bulk: b}).MaxBulk() < e.maxBulk {
		b += ring.CellSize
	}
	return b
}
