package shm

import (
	"slices"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
)

// settlePasses is for how many passes a connection that was watched is looked at
// again: longer than a store of its peer takes to become visible.
const settlePasses = 256

// A scan looks at no more than scanSlots connections at a time, scanSlices times
// per scanEvery.
const (
	scanSlots  = 256
	scanSlices = 8
)

// heat has e polled in each pass if there is room, or if another is stale.
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

// chill ends the polling of e in each pass. Its peer may miss that and give no
// hint of a message on its way, so it is looked at for a while longer.
func (f *iface) chill(e *ep) {
	if !e.watched {
		return
	}
	e.watched = false
	e.chilled = f.passes
	e.rx.Watch(false)
	if i := slices.Index(f.hot, e); i >= 0 {
		f.hot = append(f.hot[:i:i], f.hot[i+1:]...) // a new slice: a loop may run over the old one
	}
	f.shape()
}

// recheckLater has e looked at in the next service.
func (f *iface) recheckLater(e *ep) {
	if !e.rechecks {
		e.rechecks = true
		f.recheck = append(f.recheck, e)
	}
}

// recheckAll looks once more at connections that stopped being watched, and at
// those that had more than one batch.
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

// serve takes messages from a connection that is not watched, if there are any,
// and has the rest looked at later.
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

// hints serves the connections of which one of k head words from c on changed.
func (f *iface) hints(c, k, budget int) int {
	n := 0
	for i := c; i < c+k && i < len(f.words); i++ {
		v := atomic.LoadUint64(&f.words[i])
		if v == f.seen[i] {
			continue
		}
		f.seen[i] = v
		// Anew each time: callbacks may have turned to another page.
		slot := f.pageAt*inboxSlots + i
		if slot < len(f.slots) && f.slots[slot] != nil {
			n += f.serve(f.slots[slot], max(budget-n, 1))
		}
	}
	return n
}

// scan looks at every connection, whatever the hints say, once per scanEvery. A
// look costs a few cache misses each, so thousands are taken in slices between
// which messages are served, and in more time than that if need be.
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

// shape chooses which head words an idle pass looks at: none while all
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

// nextPage moves the look at head words on.
func (f *iface) nextPage() {
	if len(f.pages) > 1 && len(f.words) > 0 {
		f.pageAt++
		f.shape()
	}
}

// live counts connections.
func (f *iface) live() int { return len(f.slots) - len(f.freeSlot) }
