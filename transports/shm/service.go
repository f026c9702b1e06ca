package shm

import (
	"errors"
	"time"

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

// requestService makes the next Progress call service. If the worker is armed, it signals the
// event: another goroutine of this process may be asleep on it.
func (f *iface) requestService() {
	f.serviceNeeded, f.extraWork = true, true
	if f.armed {
		f.eventSignalled = true
		_ = f.event.Signal() // fails only if the event is closed
	}
}

// failLater fails the connection with err. The next Progress reports that to UCP.
func (f *iface) failLater(e *ep, err error) {
	if e.failure != nil {
		return
	}
	e.failure = err
	if !errors.Is(err, errPeerClosed) {
		f.stats.Inc(statFailed)
	}
	if e.status == ucs.OK {
		e.rejectOps(ucs.PeerFailed)
	}
	f.scheduleService(e)
}

// Disconnect: see uct.Iface.
func (f *iface) Disconnect(source uint32) {
	if i := int(source) - 1; i >= 0 && i < len(f.slots) && f.slots[i] != nil && !f.slots[i].rxEndReported {
		f.failLater(f.slots[i], errDisconnected)
	}
}

// scheduleService makes the next Progress check whether the connection is over.
func (f *iface) scheduleService(e *ep) {
	f.serviceQueue = append(f.serviceQueue, e)
	f.requestService()
}

// service handles the events of sockets and processes, and work that earlier calls
// queued. It invokes callbacks.
func (f *iface) service() int {
	f.serviceNeeded = false
	n, err := f.epoll.Wait(f.events[:], 0)
	if err != nil {
		f.d.logf("poll the sockets", err)
	}
	for _, ev := range f.events[:n] {
		f.dispatch(ev)
	}
	f.runDeferred()
	done := f.startReads()
	done += f.recheckAll() + f.drainDoorbells(0, len(f.doorbells), uct.MaxBatch)
	now := ucs.Now()
	if now.Sub(f.servicedAt) >= serviceInterval {
		f.servicedAt = now
		f.dialAll()
		f.expireHalfOpen(now)
		f.resumeAccept(now)
		f.evictIdle(now)
	}
	f.servePairRequests(now)
	done += f.scan(now) + f.serviceQueued()
	f.nextPage()
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
		if e := f.slots[id]; e != nil {
			e.readSocket()
		}
	case evProcess:
		if e := f.slots[id]; e != nil {
			e.peerLost()
		}
	}
}

// serviceQueued reports failed connections to UCP and releases connections that are done.
func (f *iface) serviceQueued() int {
	n := 0
	for len(f.serviceQueue) > 0 {
		es := f.serviceQueue
		f.serviceQueue = nil
		for _, e := range es {
			if !e.released {
				n += f.serviceEP(e)
			}
		}
	}
	return n
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
		e.step(machine.Event{Kind: machine.EventReceive, Msg: machine.Msg{Kind: machine.MsgMigrateNak, From: e.m.Remote(), Pair: p}})
		e.handleMigrateNak()
	}
	if e.sendFailed && !e.peerGone {
		e.peerLost()
	}
	if e.peerGone && e.failure == nil && !e.finished {
		n += f.startReads() // ACCEPT may have arrived together with the hang-up
		n += f.drainRings(e)
		f.handleHangUp(e)
	}
	if e.failure != nil && !e.failureReported {
		n += f.report(e)
	}
	if e.opened && e.failure == nil && !e.rxEndReported && e.m.PeerDrained() {
		n += f.reportRxEnd(e)
	}
	if !e.releasable() {
		return n
	}
	if e.failure == nil {
		n += f.drainRings(e)
	}
	return n + f.drop(e)
}

// handleHangUp determines why the peer hung up.
func (f *iface) handleHangUp(e *ep) {
	switch {
	case e.failure != nil: // its last messages were garbage
	case e.m.State() == machine.StateClosed:
	case e.shutdownReceived:
		f.failLater(e, errPeerClosed)
	case e.opened || !e.closeReceived && !e.m.Closing():
		f.failLater(e, errPeerCrashed)
	default: // one direction was closed and the other never used
		e.finished = true
	}
}

// drainRings delivers the messages in e's ring, at most one ring's capacity per ring
// pair.
func (f *iface) drainRings(e *ep) int {
	n := 0
	for limit := e.ringCapacity(); n <= limit && e.rx.Ready() && e.failure == nil; {
		n += f.drain(e, drainBatch)
	}
	return n
}

// report disconnects a connection that has ended, and reports the end to UCP. Watched
// descriptors of an ended socket or process would stay readable. It returns the number
// of reports.
func (f *iface) report(e *ep) int {
	e.failureReported = true
	f.demote(e)
	if err := e.disconnect(); err != nil {
		f.d.logf("disconnect", err)
	}
	var fail uct.Failure
	if !e.rxEndReported && e.received() {
		fail.RxConn = e.source
	}
	if e.opened {
		fail.Endpoint = e
	}
	if fail == (uct.Failure{}) {
		return 0
	}
	if !errors.Is(e.failure, errPeerClosed) {
		fail.Err = e.failure
	}
	f.handler.HandleFailure(fail)
	return 1
}

// reportRxEnd reports to UCP that the peer sends no more but still receives. Otherwise an
// endpoint that replies on this connection would keep it open forever.
func (f *iface) reportRxEnd(e *ep) int {
	e.rxEndReported = true
	if !e.received() {
		return 0 // UCP does not know this source
	}
	f.handler.HandleFailure(uct.Failure{RxConn: e.source})
	return 1
}

// drop reports and releases a connection that is over.
func (f *iface) drop(e *ep) (n int) {
	if !e.failureReported {
		n = f.report(e)
	}
	f.unregister(e)
	if e.counted {
		f.accepted--
	}
	if err := e.release(); err != nil {
		f.d.logf("release connection", err)
	}
	return n
}
