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
	evEmbryo
	evSocket
	evProcess

	evMask = 0xffffffff << 32
)

// tendEvery is the interval of periodic work: dial retries, timeouts of half-open
// connections, the end of acceptPause, and idle eviction.
const tendEvery = 2 * time.Millisecond

// look makes the next Progress call service. If the worker is armed, it signals the
// event: another goroutine of this process may be asleep on it.
func (f *iface) look() {
	f.attention, f.extra = true, true
	if f.armed {
		f.raised = true
		_ = f.event.Signal() // fails only if the event is closed
	}
}

// failLater fails the connection with err. The next Progress reports that to UCP.
func (f *iface) failLater(e *ep, err error) {
	if e.dead != nil {
		return
	}
	e.dead = err
	if !errors.Is(err, errOrderly) {
		f.stats.Inc(statFailed)
	}
	if e.status == ucs.OK {
		e.shut(ucs.PeerFailed)
	}
	f.settleLater(e)
}

// Disconnect: see uct.Iface.
func (f *iface) Disconnect(source uint32) {
	if i := int(source) - 1; i >= 0 && i < len(f.slots) && f.slots[i] != nil && !f.slots[i].parted {
		f.failLater(f.slots[i], errDisconnected)
	}
}

// settleLater makes the next Progress check whether the connection is over.
func (f *iface) settleLater(e *ep) {
	f.ending = append(f.ending, e)
	f.look()
}

// service handles the events of sockets and processes, and work that earlier calls
// queued. It invokes callbacks.
func (f *iface) service() int {
	f.attention = false
	n, err := f.epoll.Wait(f.events[:], 0)
	if err != nil {
		f.d.logf("poll the sockets", err)
	}
	for _, ev := range f.events[:n] {
		f.dispatch(ev)
	}
	f.doDeferred()
	done := f.startReads()
	done += f.recheckAll() + f.hints(0, len(f.words), uct.MaxBatch)
	now := ucs.Now()
	if now.Sub(f.tended) >= tendEvery {
		f.tended = now
		f.dialAll()
		f.reapEmbryos(now)
		f.resumeAccept(now)
		f.lull(now)
	}
	f.serveWants(now)
	done += f.scan(now) + f.settle()
	f.nextPage()
	return done
}

// dispatch handles an event of the epoll set.
func (f *iface) dispatch(ev shmem.Event) {
	id := uint32(ev.Data)
	switch ev.Data & evMask {
	case evWake:
		f.raised = false
		f.event.Drain()
	case evAccept:
		f.accept()
	case evEmbryo:
		f.welcome(id)
	case evSocket:
		if e := f.slots[id]; e != nil {
			e.read()
		}
	case evProcess:
		if e := f.slots[id]; e != nil {
			e.lost()
		}
	}
}

// settle reports failed connections to UCP and releases connections that are done.
func (f *iface) settle() int {
	n := 0
	for len(f.ending) > 0 {
		es := f.ending
		f.ending = nil
		for _, e := range es {
			if !e.released {
				n += f.settleOne(e)
			}
		}
	}
	return n
}

// settleOne handles what has ended on e, in this order: a MIGRATE that could not be sent,
// which counts as rejected; the peer's hang-up, after its messages on the socket and in the
// rings are delivered; a failure; the end of the peer's messages. It releases e if it is
// done. It returns the number of messages and reports.
func (f *iface) settleOne(e *ep) int {
	n := 0
	if e.refused != machine.None {
		p := e.refused.Flip()
		e.refused = machine.None
		e.step(machine.Event{Kind: machine.EventReceive, Msg: machine.Msg{Kind: machine.MsgMigrateNak, From: e.m.Remote(), Pair: p}})
		e.declined()
	}
	if e.broken && !e.hungUp {
		e.lost()
	}
	if e.hungUp && e.dead == nil && !e.over {
		n += f.startReads() // ACCEPT may have arrived together with the hang-up
		n += f.drainAll(e)
		f.end(e)
	}
	if e.dead != nil && !e.reported {
		n += f.report(e)
	}
	if e.opened && e.dead == nil && !e.parted && e.m.PeerDrained() {
		n += f.part(e)
	}
	if !e.done() {
		return n
	}
	if e.dead == nil {
		n += f.drainAll(e)
	}
	return n + f.drop(e)
}

// end determines why the peer hung up.
func (f *iface) end(e *ep) {
	switch {
	case e.dead != nil: // its last messages were garbage
	case e.m.State() == machine.StateClosed:
	case e.heardAll:
		f.failLater(e, errOrderly)
	case e.opened || !e.heardBye && !e.m.Closing():
		f.failLater(e, errHungUp)
	default: // one direction was closed and the other never used
		e.over = true
	}
}

// drainAll delivers the messages in e's ring, at most one ring's capacity per ring
// pair.
func (f *iface) drainAll(e *ep) int {
	n := 0
	for most := e.cells(); n <= most && e.rx.Ready() && e.dead == nil; {
		n += f.drain(e, drainBatch)
	}
	return n
}

// report disconnects a connection that has ended, and reports the end to UCP. Watched
// descriptors of an ended socket or process would stay readable. It returns the number
// of reports.
func (f *iface) report(e *ep) int {
	e.reported = true
	f.chill(e)
	if err := e.disconnect(); err != nil {
		f.d.logf("disconnect", err)
	}
	var fail uct.Failure
	if !e.parted && e.received() {
		fail.RxConn = e.source
	}
	if e.opened {
		fail.Endpoint = e
	}
	if fail == (uct.Failure{}) {
		return 0
	}
	if !errors.Is(e.dead, errOrderly) {
		fail.Err = e.dead
	}
	f.handler.HandleFailure(fail)
	return 1
}

// part reports to UCP that the peer sends no more but still receives. Otherwise an
// endpoint that replies on this connection would keep it open forever.
func (f *iface) part(e *ep) int {
	e.parted = true
	if !e.received() {
		return 0 // UCP does not know this source
	}
	f.handler.HandleFailure(uct.Failure{RxConn: e.source})
	return 1
}

// drop reports and releases a connection that is over.
func (f *iface) drop(e *ep) (n int) {
	if !e.reported {
		n = f.report(e)
	}
	f.forget(e)
	if e.counted {
		f.accepted--
	}
	if err := e.release(); err != nil {
		f.d.logf("release connection", err)
	}
	return n
}
