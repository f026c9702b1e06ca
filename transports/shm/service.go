package shm

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
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

// look has the next Progress do the work of service.
func (f *iface) look() { f.attention = true }

// failLater ends the connection in the next Progress, with its callback.
func (f *iface) failLater(e *ep, err error) {
	if e.dead != nil {
		return
	}
	e.dead = err
	if !e.heardBye {
		f.stats.Inc(statFailed)
	}
	if e.status == ucs.OK {
		e.shut(ucs.PeerFailed)
	}
	f.settleLater(e)
}

// settleLater has the next Progress see whether the connection is over.
func (f *iface) settleLater(e *ep) {
	f.ending = append(f.ending, e)
	f.attention = true
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
	done := f.recheckAll()
	now := ucs.Now()
	if now.Sub(f.scanned) >= f.scanEvery {
		f.scanned = now
		done += f.scanAll()
		f.reapEmbryos(now)
	}
	done += f.settle()
	f.nextPage()
	return done
}

func (f *iface) dispatch(ev shmem.Event) {
	id := uint32(ev.Data)
	switch ev.Data & evMask {
	case evWake:
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
			e.hangUp()
			_ = f.epoll.Del(e.pidfd) // it stays readable
		}
	}
}

// recheckAll looks once more at connections that stopped being watched.
func (f *iface) recheckAll() int {
	n := 0
	es := f.recheck
	f.recheck = nil
	for _, e := range es {
		if e.rx.Ready() && !e.released {
			n += f.drain(e, drainBatch)
			f.heat(e)
			if e.rx.Ready() && !e.watched {
				f.recheckLater(e)
				f.attention = true
			}
		}
	}
	return n
}

// scanAll looks at every connection, whatever the hints say, and takes up
// handshakes that stand still.
func (f *iface) scanAll() int {
	n := 0
	for i := 0; i < len(f.slots); i++ {
		e := f.slots[i]
		if e == nil {
			continue
		}
		if e.initiated && e.peerInbox == nil {
			e.greet()
		}
		if !e.watched && e.rx.Ready() {
			n += f.drain(e, drainBatch)
			f.heat(e)
		}
	}
	return n
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
	if e.hungUp && e.dead == nil {
		n = f.drainAll(e)
		f.end(e)
	}
	if e.dead != nil && !e.reported {
		f.report(e)
	}
	if !e.done() {
		return n
	}
	if e.dead == nil {
		n += f.drainAll(e)
	}
	f.drop(e)
	return n
}

// end decides why a peer hung up.
func (f *iface) end(e *ep) {
	switch {
	case e.dead != nil: // the last messages were garbage
	case e.heardAll:
		f.failLater(e, fmt.Errorf("%w: it closed its worker", ucs.ErrPeerFailed))
	case e.heardBye || e.saidBye:
		e.heardBye = true
		if e.opened {
			f.failLater(e, fmt.Errorf("%w: it closed the connection", ucs.ErrPeerFailed))
		}
		e.saidBye = true
	default:
		f.failLater(e, errHungUp)
	}
}

// drainAll delivers all that the peer left; it writes no more, so that a ring's
// worth is the most there can be.
func (f *iface) drainAll(e *ep) int {
	n := 0
	for n <= f.layout.Cells+e.cells && e.rx.Ready() && e.dead == nil {
		n += f.drain(e, drainBatch)
	}
	return n
}

// report tells the layer above that a connection ended.
func (f *iface) report(e *ep) {
	e.reported = true
	f.chill(e)
	fail := uct.Failure{Source: e.source}
	if e.opened {
		fail.Endpoint = e
	}
	if !e.heardBye {
		fail.Err = e.dead
	}
	f.handler.HandleFailure(fail)
}

// drop releases a connection that is over.
func (f *iface) drop(e *ep) {
	if !e.reported {
		f.report(e)
	}
	f.forget(e)
	if !e.initiated {
		f.accepted--
	}
	if err := e.release(); err != nil {
		f.d.logf("release connection", err)
	}
}

// nextPage moves the look at head words on.
func (f *iface) nextPage() {
	if len(f.pages) > 1 && len(f.words) > 0 {
		f.pageAt++
		f.shape()
	}
}
