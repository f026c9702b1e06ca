package shm

import (
	"errors"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// What a watched descriptor is, in the upper half of its epoll data; the lower
// half is a slot or an embryo's number.
const (
	evWake uint64 = iota << 32
	evAccept
	evEmbryo
	evSocket
	evProcess

	evMask = 0xffffffff << 32
)

// tendEvery is how often handshakes that stand still are looked after.
const tendEvery = 2 * time.Millisecond

// look has the next Progress do the work of service. A sleeper, which another
// goroutine of this process may have been faster than, is woken for it.
func (f *iface) look() {
	f.attention, f.extra = true, true
	if f.armed {
		f.raised = true
		_ = f.event.Signal() // an error means closed
	}
}

// failLater ends the connection in the next Progress, with its callback.
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

// settleLater has the next Progress see whether the connection is over.
func (f *iface) settleLater(e *ep) {
	f.ending = append(f.ending, e)
	f.look()
}

// service looks at sockets and processes, and does what they and earlier calls
// brought up. Callbacks happen here.
func (f *iface) service() int {
	f.attention = false
	n, err := f.epoll.Wait(f.events[:], 0)
	if err != nil {
		f.d.logf("look at sockets", err)
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

// settle reports connections that failed and releases those that nobody needs.
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

func (f *iface) settleOne(e *ep) int {
	n := 0
	if e.refused != machine.None {
		p := e.refused.Flip()
		e.refused = machine.None
		e.step(machine.Event{Kind: machine.Hear, Msg: machine.Msg{Kind: machine.Decline, From: e.m.Remote(), Pair: p}})
		e.declined()
	}
	if e.broken && !e.hungUp {
		e.lost()
	}
	if e.hungUp && e.dead == nil && !e.over {
		n += f.startReads() // its accept may have come with its end
		n += f.drainAll(e)
		f.end(e)
	}
	if e.dead != nil && !e.reported {
		n += f.report(e)
	}
	if e.opened && e.dead == nil && !e.parted && e.m.PeerEnded() {
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

// end decides why a peer hung up.
func (f *iface) end(e *ep) {
	switch {
	case e.dead != nil: // the last messages were garbage
	case e.m.State() == machine.Done:
	case e.heardAll:
		f.failLater(e, errOrderly)
	case e.opened || !e.heardBye && !e.m.SaidBye():
		f.failLater(e, errHungUp)
	default: // one side was done, and the other had never sent
		e.over = true
	}
}

// drainAll delivers all that the peer left; it writes no more, so that a ring's
// worth is the most there can be.
func (f *iface) drainAll(e *ep) int {
	n := 0
	for most := e.cells(); n <= most && e.rx.Ready() && e.dead == nil; {
		n += f.drain(e, drainBatch)
	}
	return n
}

// report tells the layer above that a connection ended, and hangs up: a socket
// or process that has ended stays readable for as long as it is watched. It returns the
// number of failures reported.
func (f *iface) report(e *ep) int {
	e.reported = true
	f.chill(e)
	if err := e.disconnect(); err != nil {
		f.d.logf("hang up", err)
	}
	var fail uct.Failure
	if !e.parted && e.received() {
		fail.Source = e.source
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

// part tells the layer above that the peer, who still reads, sends no more: what
// answers it by this very connection would else keep it for ever.
func (f *iface) part(e *ep) int {
	e.parted = true
	if !e.received() {
		return 0 // of nobody whom it knows
	}
	f.handler.HandleFailure(uct.Failure{Source: e.source})
	return 1
}

// drop releases a connection that is over.
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
