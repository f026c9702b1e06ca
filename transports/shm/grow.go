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
	// migrateRetryDelay is the time without MIGRATE after a MIGRATE_NAK. The peer lacks
	// memory or descriptors, or has not read all messages in its previous ring pair.
	migrateRetryDelay = 2 * time.Millisecond
)

// noResource records a refused message of n bytes and returns NoResource. It requests a ring
// pair if the connection is suspended or has refused sends often.
//
//go:noinline
func (e *ep) noResource(n int) uct.Status {
	e.f.stats.Inc(statNoResource)
	e.neededRoom = n
	if e.refusals++; e.refusals >= growAfter || e.txPair == machine.None {
		e.requestPair()
	}
	return ucs.NoResource
}

// requestPair makes service check whether the connection needs another ring pair.
func (e *ep) requestPair() {
	f := e.f
	if e.M.State() == machine.StateOpen && e.Add(inPairRequests) {
		f.pairRequests = append(f.pairRequests, e)
		f.requestService()
	}
}

// delayMigrate sends no MIGRATE for duration d.
func (e *ep) delayMigrate(d time.Duration) { e.migrateAfter = ucs.Now().Add(d) }

// handleMigrateNak handles MIGRATE_NAK. It retries later if operations are pending.
func (e *ep) handleMigrateNak() {
	e.delayMigrate(migrateRetryDelay)
	if e.M.TxPair() == machine.None && e.pend.Len() > 0 {
		e.requestPair()
	}
}

// servePairRequests resumes and grows connections that requested a ring pair.
func (f *iface) servePairRequests(now ucs.Time) {
	es := f.pairRequests
	f.pairRequests, f.sparePairRequests = f.sparePairRequests[:0], es
	for _, e := range es {
		if !e.Life.Over() && e.status == ucs.OK && !f.servePairRequest(e, now) {
			f.pairRequests = append(f.pairRequests, e)
			continue
		}
		e.Drop(inPairRequests)
	}
	clear(es)
}

// servePairRequest resumes or grows e. It returns false if service must check e again.
func (f *iface) servePairRequest(e *ep, now ucs.Time) bool {
	switch {
	case e.M.TxPair() == machine.None && e.M.State() == machine.StateOpen:
		if e.M.Migrating() {
			return true // the socket reports the peer's response
		}
		if now >= e.migrateAfter {
			e.proposePair(machine.EventResume, f.layout)
		}
		return e.M.Migrating()
	case e.refusals < growAfter:
		return true
	case now.Sub(e.refusalsSince) > growWithin: // too few in this time: restart the count
		e.refusals, e.refusalsSince = 0, now
		return true
	}
	e.refusals, e.refusalsSince = 0, now
	if l, ok := e.nextLayout(); ok && now >= e.migrateAfter && e.M.CanMigrate() {
		e.proposePair(machine.EventMigrate, l)
	}
	return true
}

// nextLayout returns the geometry to which the connection grows next: twice the size. ok is
// false if the ring has its maximum size.
func (e *ep) nextLayout() (ring.Layout, bool) {
	p := e.pair(e.M.TxPair())
	if p == nil {
		return ring.Layout{}, false
	}
	size := min(2*p.layout.Size(), e.f.maxRingSize)
	l := ring.Fit(size, min(2*p.layout.Cells, maxCells))
	return l, l.Cells > p.layout.Cells && l.MaxBulk() >= p.layout.MaxBulk() && l.Check() == nil
}

// proposePair makes a ring pair with geometry l and passes event k to the machine, which
// sends MIGRATE.
func (e *ep) proposePair(k machine.EventKind, l ring.Layout) {
	if l.MaxBulk() < e.maxBulk {
		l = ring.Layout{Cells: l.Cells, Bulk: e.minBulkSize()}
	}
	p, err := makePair(l)
	if err != nil {
		e.f.d.logf("make a pair", err)
		e.delayMigrate(migrateRetryDelay)
		return
	}
	e.newPair = p
	e.step(machine.Event{Kind: k})
	if e.newPair != nil { // the machine does not migrate now
		_ = e.newPair.seg.Close()
		e.newPair = nil
	}
}

// minBulkSize returns the size of the smallest bulk area that holds the connection's longest
// message. It may exceed that of this iface's layout if the peer made the first ring pair.
func (e *ep) minBulkSize() int {
	b := minBulk
	for (ring.Layout{Bulk: b}).MaxBulk() < e.maxBulk {
		b += ring.CellSize
	}
	return b
}

// Suspend implements conn.Connection.
func (e *ep) Suspend() {
	e.f.stats.Inc(statSuspends)
	e.step(machine.Event{Kind: machine.EventSuspend})
}
