package shm

import (
	"sync/atomic"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// globalBarrier is shmem.GlobalBarrier. Tests replace it to show that it is needed.
var globalBarrier = shmem.GlobalBarrier

// Arm arms the worker: EventFD becomes readable at the next event.
//
// Invariant: a message that arrives while Arm runs is either found here or wakes the
// worker. The sender stores the message, then loads the armed word. Arm stores the armed
// word, issues a full barrier, then polls every ring. With a full barrier on the sender's
// side too, at least one of them sees the other's store. Arm provides both barriers:
// membarrier issues one on every core that runs a registered process. So sends need
// none. If this process cannot use membarrier, or a peer is not registered for it, the
// sender issues the barrier itself (flagFence, ep.needsBarrier).
//
// Arm returns InProgress if OPEN is not sent to some peer yet: no event reports room in
// that peer's backlog.
//
// Cost: one system call for the barrier, and one more after a wake-up.
func (f *iface) Arm(uct.EventKind) uct.Status {
	if f.state == closed {
		return ucs.Closed
	}
	if f.hasWork() {
		f.needService() // the work may be where only service polls
		return ucs.Busy
	}
	if f.state == armed {
		f.disarm()
	}
	if f.eventSignalled {
		f.eventSignalled = false
		f.event.Drain()
	}
	f.state = armed
	f.setOnly()
	f.sleepID = max(f.sleepID+1, minSleepID)
	for _, p := range f.pages {
		atomic.StoreUint32(p.armed, f.sleepID)
	}
	fault.At(fault.Armed)
	// Peers normally report freed room in batches. That is enough for a worker that polls.
	for _, e := range f.waiting {
		if e.status == ucs.OK {
			f.wakeOnRoom = append(f.wakeOnRoom, e)
			e.tx.SetWaiting(true)
		}
	}
	// After the barrier, all stores that a sender made before its load of the armed
	// word are visible to the polls below.
	if f.fenceFlag == 0 && globalBarrier() != nil || f.hasWork() {
		served := f.servedAt
		f.disarm()
		f.servedAt = served
		return ucs.Busy
	}
	f.needService() // an idle pass after the sleep calls service
	if len(f.undialed) > 0 {
		return ucs.InProgress
	}
	return ucs.OK
}

// needService makes the next idle pass call service.
func (f *iface) needService() {
	f.servedAt, f.skippedPolls, f.polledAt = f.passes()-servicePasses, busyPolls, 0
	f.needPass()
}

// hasWork reports whether there is work: in service, in a ring, a copy, or room for a pending
// operation.
func (f *iface) hasWork() bool {
	if f.serviceNeeded || len(f.fetching) > 0 {
		return true
	}
	for _, e := range f.Slots {
		if e != nil && !e.Life.Over() && e.ready() {
			return true
		}
	}
	for _, e := range f.waiting {
		if e.status == ucs.OK && e.tx.WouldFit(e.neededRoom) {
			return true
		}
	}
	return false
}

// disarm ends the sleep. A peer signals the event before it clears the armed word. So a
// cleared word means that the event needs a drain. A signal that arrives later costs
// one spurious wake-up.
//
//go:noinline
func (f *iface) disarm() {
	f.state = polling
	f.setOnly()
	f.servedAt = f.passes() // the service pass that Arm arranged is skipped: the wake-up was for a message
	for _, p := range f.pages {
		if atomic.SwapUint32(p.armed, 0) == 0 {
			f.eventSignalled = true
		}
	}
	for i, e := range f.wakeOnRoom {
		if e.Life != conn.Released {
			e.tx.SetWaiting(false)
		}
		f.wakeOnRoom[i] = nil
	}
	f.wakeOnRoom = f.wakeOnRoom[:0]
}
