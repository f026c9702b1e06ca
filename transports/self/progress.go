package self

import (
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Progress delivers the messages of closed endpoints, then of open ones in turn, beginning where the last
// call ran out of budget; then it lets each endpoint's waiting tokens try.
// hot: BenchmarkAMShort, BenchmarkIdle
func (i *iface) Progress(budget int) int {
	if i.signalled {
		i.lower()
	}
	// The handler may make and close endpoints: closed ones stay in eps until
	// reap, new ones wait for the next pass.
	done := 0
	if len(i.closing) > 0 {
		if done = i.reap(budget); done >= budget {
			return done
		}
	}
	n, k := len(i.eps), i.next
	for range n {
		if k >= n {
			k = 0
		}
		e := i.eps[k]
		k++
		if e.q.n > 0 {
			done += e.deliver(budget - done)
		}
		if e.pend.Len() > 0 && e.state == ucs.OK && e.q.fits(e.refused) {
			e.offer()
		}
		if done >= budget {
			break
		}
	}
	i.next = k
	return done
}

// deliver hands over at most budget messages.
func (e *endpoint) deliver(budget int) (done int) {
	q := &e.q
	for done < budget && q.n > 0 {
		ds := q.ds[q.r:min(q.r+min(q.n, budget-done, uct.MaxBatch), len(q.ds))]
		last := ds[len(ds)-1]
		e.iface.handler.HandleAM(q.mem, ds)
		q.pop(len(ds), int(last.Off)+align(int(last.Len)), e.reserved >= 0)
		done += len(ds)
	}
	return done
}

// reap delivers the messages of closed endpoints in the order of Close, removes
// those endpoints, and reports the end of their connections. All of them were sent
// before the messages of an endpoint that was used after the Close, so they are
// delivered first. It returns the number of messages and reports.
//
//go:noinline
func (i *iface) reap(budget int) (n int) {
	for len(i.closing) > 0 && n < budget {
		e := i.closing[0]
		n += e.deliver(budget - n)
		if e.q.n > 0 {
			return n
		}
		i.closing = i.closing[1:]
		k := slices.Index(i.eps, e)
		i.eps = slices.Delete(i.eps, k, k+1)
		if k < i.next {
			i.next--
		}
		if e.q.ds != nil {
			i.handler.HandleFailure(uct.Failure{Source: e.source})
			n++
		}
	}
	return n
}

// Release: see uct.Iface; messages cannot be kept.
func (i *iface) Release([]uint64) {}

// EventFD: see uct.Iface.
func (i *iface) EventFD() int {
	if i.event == nil {
		return -1
	}
	return i.event.FD()
}

// Arm: see uct.Iface. Only a send of the owner itself can be an event, so the
// flag is raised there.
func (i *iface) Arm(uct.EventKind) uct.Status {
	if i.closed {
		return ucs.Closed
	}
	if i.event == nil {
		return ucs.Unsupported
	}
	if len(i.closing) > 0 {
		return ucs.Busy
	}
	for _, e := range i.eps {
		if e.q.n > 0 || e.pend.Len() > 0 && e.state == ucs.OK {
			return ucs.Busy
		}
	}
	if i.signalled {
		i.lower()
	}
	i.armed = true
	for _, e := range i.eps {
		e.gate()
	}
	return ucs.OK
}

// wake raises the event where it is armed.
func (i *iface) wake() {
	if !i.armed {
		return
	}
	i.armed = false
	// An error leaves the sleeper to its time-out; the descriptor is open.
	_ = i.event.Signal()
	i.signalled = true
}

func (i *iface) lower() {
	i.event.Drain()
	i.signalled = false
}
