package shm

import (
	"slices"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
)

// settlePasses is the number of passes in which a demoted connection is still polled. It
// takes longer than a store of the peer needs to become visible.
const settlePasses = 256

// A scan polls at most scanSlots connections at a time, and at most scanSlices times in
// scanEvery.
const (
	scanSlots  = 256
	scanSlices = 8
)

// heat promotes e to the hot connections, which every pass polls. If there is no room,
// it demotes the one that is idle longest, provided that one is stale.
//
// A hot ring has its polled flag set, so its sender writes no doorbell. The other rings
// are polled when their doorbell word changes (hints), for some passes after a demotion
// (recheckAll), and by the periodic scan. So a doorbell that is lost in a transition delays a
// message by at most one scan.
func (f *iface) heat(e *ep) {
	if e.watched || e.dead != nil {
		return
	}
	if len(f.hot) == maxHot {
		stalest := f.hot[0]
		for _, h := range f.hot[1:] {
			if f.passes-h.hit > f.passes-stalest.hit {
				stalest = h
			}
		}
		if f.passes-stalest.hit < stalePasses {
			return
		}
		f.chill(stalest)
		f.recheckLater(stalest)
	}
	e.watched = true
	e.hit = f.passes
	f.hot = append(f.hot, e)
	e.rx.Watch(true)
	f.shape()
}

// chill demotes e: passes no longer poll its ring. The peer may not see that yet and
// may write no doorbell for a message in flight. If e is still read, the caller queues
// it for recheck, which polls it for settlePasses.
func (f *iface) chill(e *ep) {
	if !e.watched {
		return
	}
	e.watched = false
	e.chilled = f.passes
	e.rx.Watch(false)
	if i := slices.Index(f.hot, e); i >= 0 {
		f.hot = append(f.hot[:i:i], f.hot[i+1:]...) // a new slice: a loop may iterate over the old one
	}
	f.shape()
}

// recheckLater makes the next service poll e.
func (f *iface) recheckLater(e *ep) {
	if !e.rechecks {
		e.rechecks = true
		f.recheck = append(f.recheck, e)
	}
}

// recheckAll polls connections that were demoted, and those with messages left after a
// batch.
func (f *iface) recheckAll() int {
	n := 0
	es := f.recheck
	f.recheck = nil
	for _, e := range es {
		e.rechecks = false
		n += f.serve(e, drainBatch)
		if e.rechecks {
			f.attention = true
		} else if !e.watched && !e.released && f.passes-e.chilled < settlePasses {
			f.recheckLater(e)
		}
	}
	return n
}

// serve drains a connection that is not hot, if it has messages, and promotes it. It
// queues the connection for recheck if messages are left.
func (f *iface) serve(e *ep, budget int) int {
	if e.released || e.dead != nil || !e.rx.Ready() {
		return 0
	}
	n := f.drain(e, budget)
	f.heat(e)
	if e.rx.Ready() && !e.watched {
		f.recheckLater(e)
	}
	return n
}

// hints drains the connections whose doorbell words changed, of k words from index c.
func (f *iface) hints(c, k, budget int) int {
	n := 0
	for i := c; i < c+k && i < len(f.words); i++ {
		v := atomic.LoadUint64(&f.words[i])
		if v == f.seen[i] {
			continue
		}
		f.seen[i] = v
		// Computed anew in each round: callbacks may have selected another page.
		slot := f.pageAt*inboxSlots + i
		if slot < len(f.slots) && f.slots[slot] != nil {
			n += f.serve(f.slots[slot], max(budget-n, 1))
		}
	}
	return n
}

// scan polls all connections once per scanEvery, independent of doorbells. Each poll
// costs a few cache misses. So it takes a slice at a time, messages are drained between
// slices, and a scan of thousands of connections may take longer than scanEvery.
func (f *iface) scan(now ucs.Time) int {
	if f.scanAt == 0 {
		if now.Sub(f.sweep) < f.scanEvery {
			return 0
		}
		f.sweep = now
	} else if now.Sub(f.scanned) < f.scanEvery/scanSlices {
		return 0
	}
	f.scanned = now
	n, end := 0, f.scanAt+scanSlots
	for ; f.scanAt < end && f.scanAt < len(f.slots); f.scanAt++ {
		if e := f.slots[f.scanAt]; e != nil && !e.watched {
			k := f.serve(e, drainBatch)
			f.stats.Add(statRescued, uint64(k))
			n += k
		}
	}
	if f.scanAt >= len(f.slots) {
		f.scanAt = 0
	}
	return n
}

// shape selects the doorbell words that idle passes poll. It selects none while all
// connections are hot.
func (f *iface) shape() {
	f.cold, f.extra = 0, true
	if f.live() <= len(f.hot) {
		f.words, f.seen, f.pageAt = nil, nil, 0
		return
	}
	f.pageAt %= len(f.pages)
	used := min(len(f.slots)-f.pageAt*inboxSlots, inboxSlots)
	used = (used + inboxStride - 1) / inboxStride * inboxStride
	p := f.pages[f.pageAt]
	f.words, f.seen = p.heads[:used], p.seen[:used]
}

// nextPage selects the next doorbell page.
func (f *iface) nextPage() {
	if len(f.pages) > 1 && len(f.words) > 0 {
		f.pageAt++
		f.shape()
	}
}

// live returns the number of connections.
func (f *iface) live() int { return len(f.slots) - len(f.freeSlot) }
