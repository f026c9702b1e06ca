package shm

import (
	"sync/atomic"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// Arm asks to be woken through EventFD.
func (f *iface) Arm(uct.EventKind) uct.Status {
	if f.closed {
		return ucs.Closed
	}
	if f.anything() {
		return ucs.Busy
	}
	if f.armed {
		f.disarm()
	}
	f.event.Drain()
	f.armed = true
	f.sleeps = max(f.sleeps+1, 1)
	for _, p := range f.pages {
		atomic.StoreUint32(p.armed, f.sleeps)
	}
	if fault.Enabled {
		fault.At(fault.Armed)
	}
	// Peers tell of room in batches, which is enough for one who polls.
	for _, e := range f.waiting {
		if e.status == ucs.OK {
			f.asleep = append(f.asleep, e)
			e.tx.Wait(true)
		}
	}
	// The barrier runs on every core that executes a peer: what it stored before
	// looking at the armed word is visible below. Without it, or towards a peer
	// that is not registered for it, the peer puts the barrier itself (flagFence).
	if !f.noBarrier && shmem.GlobalBarrier() != nil || f.anything() {
		f.disarm()
		return ucs.Busy
	}
	f.passes |= servicePasses - 1 // the pass after the sleep looks at what woke us
	return ucs.OK
}

// anything looks at every ring, and at what waits for room in one. A peer that
// could not be dialled gives no sign when it can: that takes polling.
func (f *iface) anything() bool {
	if f.attention || len(f.undialed) > 0 {
		return true
	}
	for _, e := range f.slots {
		if e != nil && e.dead == nil && e.rx.Ready() {
			return true
		}
	}
	for _, e := range f.waiting {
		if e.status == ucs.OK && e.tx.Peek(e.need) {
			return true
		}
	}
	return false
}

func (f *iface) disarm() {
	f.armed = false
	for _, p := range f.pages {
		atomic.StoreUint32(p.armed, 0)
	}
	for i, e := range f.asleep {
		if !e.released {
			e.tx.Wait(false)
		}
		f.asleep[i] = nil
	}
	f.asleep = f.asleep[:0]
}
