package shm

import (
	"sync/atomic"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// globalBarrier is shmem.GlobalBarrier but for tests that show what it is for.
var globalBarrier = shmem.GlobalBarrier

// Arm asks to be woken through EventFD. InProgress: a peer that could not be
// dialled gives no sign when it can.
//
// Cost: one system call, the barrier, and one more after a wake-up.
func (f *iface) Arm(uct.EventKind) uct.Status {
	if f.closed {
		return ucs.Closed
	}
	if f.anything() {
		f.passes |= servicePasses - 1 // it may be where only service looks
		return ucs.Busy
	}
	if f.armed {
		f.disarm()
	}
	if f.raised {
		f.raised = false
		f.event.Drain()
	}
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
	if !f.noBarrier && globalBarrier() != nil || f.anything() {
		f.disarm()
		return ucs.Busy
	}
	f.passes |= servicePasses - 1 // an idle pass after the sleep looks at what woke us
	if len(f.undialed) > 0 {
		return ucs.InProgress
	}
	return ucs.OK
}

// anything looks at every ring, and at what waits for room in one.
func (f *iface) anything() bool {
	if f.attention {
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

// disarm ends the sleep. A waker raises the event before it lowers the word, so
// a lowered word tells of an event that is to be drained; one that is slower
// costs a wake-up for nothing.
//
//go:noinline
func (f *iface) disarm() {
	f.armed = false
	f.passes++ // past the pass that Arm arranged: a message was all there was
	for _, p := range f.pages {
		if atomic.SwapUint32(p.armed, 0) == 0 {
			f.raised = true
		}
	}
	for i, e := range f.asleep {
		if !e.released {
			e.tx.Wait(false)
		}
		f.asleep[i] = nil
	}
	f.asleep = f.asleep[:0]
}
