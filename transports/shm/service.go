package shm

import (
	"time"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// Types of watched descriptors, in the upper half of the epoll data. The lower half is
// a slot, or the number of a half-open connection.
const (
	evWake uint64 = iota << 32
	evAccept
	evHalfOpen
	evSocket
	evProcess

	evMask = 0xffffffff << 32
)

// serviceInterval is the interval of periodic work: dial retries, timeouts of half-open
// connections, the end of acceptPause, and idle eviction.
const serviceInterval = 2 * time.Millisecond

// requestService makes the next Progress call service.
func (f *iface) requestService() {
	f.serviceNeeded = true
	f.requestPass()
}

// requestPass makes the next pass do extra work. If the worker is armed, it signals the
// event: another goroutine of this process may be asleep on it.
func (f *iface) requestPass() {
	f.needPass()
	if f.state == armed {
		f.eventSignalled = true
		_ = f.event.Signal() // fails only if the event is closed
	}
}

// service handles the events of sockets and processes, and work that earlier calls
// queued. It invokes callbacks.
func (f *iface) service() int {
	f.serviceNeeded, f.servedAt, f.skippedPolls = false, f.passes(), 0
	n, err := f.epoll.Wait(f.events[:], 0)
	if err != nil {
		f.d.logf("poll the sockets", err)
	}
	for _, ev := range f.events[:n] {
		f.dispatch(ev)
	}
	deferred := f.deferred
	f.deferred = nil
	for _, e := range deferred {
		switch {
		case e.Life == conn.Released:
		case e.resLen >= 0 && !e.Life.Over(): // its reservation is still open
			f.deferred = append(f.deferred, e)
			f.serviceNeeded = true
		default:
			e.runDeferred()
		}
	}
	done := f.startReads()
	done += f.drainDoorbells(0, len(f.doorbells), uct.MaxBatch)
	now := ucs.Now()
	f.polledAt = now
	if now.Sub(f.servicedAt) >= serviceInterval {
		f.servicedAt = now
		f.dialAll()
		for id, c := range f.halfOpen {
			if now.Sub(c.since) > openTimeout {
				f.dropHalfOpen(id)
			}
		}
		if f.acceptPausedUntil != 0 && now >= f.acceptPausedUntil {
			f.acceptPausedUntil = 0
			if err := f.epoll.Add(f.listener.FD(), evAccept, shmem.EventIn); err != nil {
				f.d.logf("poll the listener", err)
			}
		}
		f.EvictIdle(now)
		f.unmapClosed()
	}
	done += f.selectMailbox()
	f.servePairRequests(now)
	done += f.scan(now) + f.Service(f.serviceEP)
	if len(f.pages) > 1 && len(f.doorbells) > 0 {
		f.currentPage++
		f.selectDoorbells()
	}
	return done
}

// dispatch handles an event of the epoll set.
func (f *iface) dispatch(ev shmem.Event) {
	id := uint32(ev.Data)
	switch ev.Data & evMask {
	case evWake:
		f.eventSignalled = false
		f.event.Drain()
	case evAccept:
		f.accept()
	case evHalfOpen:
		f.receiveOpen(id)
	case evSocket:
		if e := f.Slots[id]; e != nil {
			e.readSocket()
		}
	case evProcess:
		if e := f.Slots[id]; e != nil {
			e.peerLost()
		}
	}
}

// serviceEP handles what has ended on e, in this order: a MIGRATE that could not be sent,
// which counts as rejected; the peer's hang-up, after its messages on the socket and in the
// rings are delivered; a failure; the end of the peer's messages. It releases e if it is
// done. It returns the number of messages and reports.
func (f *iface) serviceEP(e *ep) int {
	n := 0
	if e.unsentMigrate != machine.None {
		p := e.unsentMigrate.Flip()
		e.unsentMigrate = machine.None
		e.step(machine.Event{Kind: machine.EventReceive, Msg: machine.Msg{Kind: machine.MsgMigrateNak, From: e.M.Remote(), Pair: p}})
		e.handleMigrateNak()
	}
	if e.Drop(sendFailed) {
		e.peerLost()
	}
	if e.Life == conn.HungUp {
		n += f.startReads() // ACCEPT may have arrived together with the hang-up
		n += f.drainRings(e)
		switch {
		case e.Life.Over(): // its last messages were garbage
		case e.M.State() == machine.StateClosed:
		case e.Has(shutdownReceived):
			if !e.allConsumed() {
				e.Add(conn.Unacked)
			}
			f.FailLater(e, conn.ErrPeerClosed)
		case e.Has(conn.Opened) || !e.Has(closeReceived) && !e.M.Closing():
			f.FailLater(e, errPeerCrashed)
		default: // one direction was closed and the other never used
			e.Life.Step(conn.Finish)
		}
	}
	if e.Life == conn.Failing {
		n += f.report(e)
	}
	if e.Has(conn.Opened) && !e.Life.Over() && e.M.PeerDrained() {
		n += f.ReportRxEnd(e)
	}
	if !e.releasable() {
		return n
	}
	if !e.Life.Over() {
		n += f.drainRings(e)
	}
	if e.Life != conn.Ended {
		n += f.report(e)
	}
	n += f.endFetches(e)
	f.Uncount(e)
	if err := f.remove(e); err != nil {
		f.d.logf("release connection", err)
	}
	return n
}

// drainRings delivers the messages in e's ring, at most one ring's capacity per ring
// pair.
func (f *iface) drainRings(e *ep) int {
	n := 0
	for limit := e.ringCapacity(); n <= limit && e.ready() && !e.Life.Over(); {
		n += f.drainMail(e) + f.drain(e, drainBatch)
	}
	return n
}

// report disconnects a connection that has ended, and reports the end to UCP. Watched
// descriptors of an ended socket or process would stay readable. It returns the number
// of reports.
func (f *iface) report(e *ep) int {
	f.demote(e)
	n := f.endFetches(e)
	if err := e.disconnect(); err != nil {
		f.d.logf("disconnect", err)
	}
	return n + f.Report(e, false)
}
