package shm

import (
	"slices"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
)

// recheckPasses is the number of passes in which a demoted connection is still polled. It
// takes longer than a store of the peer needs to become visible.
const recheckPasses = 256

// A scan polls at most scanSlots connections at a time, and at most scanSlices times in
// scanInterval.
const (
	scanSlots  = 256
	scanSlices = 8
)

// promote promotes e to the hot connections, which every pass polls. If there is no room,
// it demotes the one that is idle longest, provided that one is stale.
//
// A hot ring has its polled flag set, so its sender writes no doorbell. The other rings
// are polled when their doorbell word changes (drainDoorbells), for some passes after a demotion
// (iface.recheck), and by the periodic scan. So a doorbell that is lost in a transition delays a
// message by at most one scan.
func (f *iface) promote(e *ep) {
	if e.hot || e.Life.Over() {
		return
	}
	if len(f.hot) == maxHot {
		stalest := f.hot[0]
		for _, h := range f.hot[1:] {
			if f.passes()-h.lastHit > f.passes()-stalest.lastHit {
				stalest = h
			}
		}
		if f.passes()-stalest.lastHit < stalePasses {
			return
		}
		f.demote(stalest)
		f.recheck.Add(stalest)
	}
	if len(f.hot) == 1 {
		f.hot[0].lastHit = f.passes() // Progress does not note the hits of the only one
	}
	e.hot = true
	e.lastHit = f.passes()
	f.hot = append(f.hot, e)
	e.rx.SetPolled(true)
	f.selectDoorbells()
}

// demote demotes e: passes no longer poll its ring. The peer may not see that yet and
// may write no doorbell for a message in flight. If e is still read, the caller queues
// it for recheck, which polls it for recheckPasses.
func (f *iface) demote(e *ep) {
	if !e.hot {
		return
	}
	if f.mail.ep == e {
		f.leaveMailbox()
	}
	e.hot = false
	e.demotedAt = f.passes()
	e.rx.SetPolled(false)
	if i := slices.Index(f.hot, e); i >= 0 {
		f.hot = append(f.hot[:i:i], f.hot[i+1:]...) // a new slice: a loop may iterate over the old one
	}
	f.selectDoorbells()
}

// drainCold drains a connection that is not hot, if it has messages, and promotes it. It
// queues the connection for recheck if messages are left.
func (f *iface) drainCold(e *ep, budget int) int {
	if e.Life.Over() || !e.ready() {
		return 0
	}
	n := f.drainMail(e)
	n += f.drain(e, budget)
	f.promote(e)
	if e.ready() && !e.hot {
		f.recheck.Add(e)
	}
	return n
}

// drainDoorbells drains the connections whose doorbell words changed, of k words from index c. It takes at most budget
// messages of each.
func (f *iface) drainDoorbells(c, k, budget int) int {
	n := 0
	for i := c; i < c+k && i < len(f.doorbells); i++ {
		v := atomic.LoadUint64(&f.doorbells[i])
		if v == f.lastDoorbells[i] {
			continue
		}
		f.lastDoorbells[i] = v
		// Computed anew in each round: callbacks may have selected another page.
		slot := f.currentPage*slotsPerPage + i
		if slot >= len(f.Slots) {
			continue
		}
		if e := f.Slots[slot]; e != nil && !e.Has(inRecheck) { // otherwise slowPass drains it
			n += f.drainCold(e, budget)
		}
	}
	return n
}

// scan polls all connections once per scanInterval, independent of doorbells. Each poll
// costs a few cache misses. So it takes a slice at a time, messages are drained between
// slices, and a scan of thousands of connections may take longer than scanInterval.
func (f *iface) scan(now ucs.Time) int {
	if f.nextScanSlot == 0 {
		if now.Sub(f.scanStart) < f.scanInterval {
			return 0
		}
		f.scanStart = now
	} else if now.Sub(f.sliceStart) < f.scanInterval/scanSlices {
		return 0
	}
	f.sliceStart = now
	n, end := 0, f.nextScanSlot+scanSlots
	for ; f.nextScanSlot < end && f.nextScanSlot < len(f.Slots); f.nextScanSlot++ {
		if e := f.Slots[f.nextScanSlot]; e != nil && !e.hot {
			k := f.drainCold(e, drainBatch)
			f.stats.Add(statRescued, uint64(k))
			n += k
		}
	}
	if f.nextScanSlot >= len(f.Slots) {
		f.nextScanSlot = 0
	}
	return n
}

// setOnly sets f.only. It is called after each change of the hot connections, of the mailbox, and of the iface's state.
func (f *iface) setOnly() {
	f.only = nil
	if len(f.hot) == 1 && f.mail.ep == nil && f.state == polling {
		f.only = f.hot[0]
	}
}

// selectDoorbells selects the doorbell words that idle passes poll. It selects none while all
// connections are hot.
func (f *iface) selectDoorbells() {
	f.nextDoorbell = 0
	f.setOnly()
	f.needPass()
	if f.Len() <= len(f.hot) {
		f.doorbells, f.lastDoorbells, f.currentPage = nil, nil, 0
		return
	}
	f.currentPage %= len(f.pages)
	used := min(len(f.Slots)-f.currentPage*slotsPerPage, slotsPerPage)
	used = (used + doorbellStride - 1) / doorbellStride * doorbellStride
	p := f.pages[f.currentPage]
	f.doorbells, f.lastDoorbells = p.doorbells[:used], p.lastSeen[:used]
}
