package self

import (
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Progress delivers the messages of closed endpoints, then those of open endpoints,
// beginning where the previous call exhausted its budget. Then it retries each
// endpoint's pending operations.
//
//hot:bench BenchmarkAMShort BenchmarkIdle
func (i *iface) Progress(budget int) int {
	if i.signalled {
		i.drainEvent()
	}
	// The handler may open and close endpoints. Closed ones stay in eps until reap. New
	// ones wait for the next pass.
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
		if e.pend.Len() > 0 && e.state == ucs.OK && e.q.fits(e.refusedLen) {
			e.dispatchPending()
		}
		if done >= budget {
			break
		}
	}
	i.next = k
	return done
}

// deliver passes at most budget messages to the handler.
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

// reap delivers the messages of closed endpoints in the order of Close. It removes
// these endpoints and reports the end of their connections. Their messages were sent
// before those of any endpoint used after the Close, so they are delivered first. It
// returns the number of messages and reports.
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
			i.handler.HandleFailure(uct.Failure{RxConn: e.source})
			n++
		}
	}
	return n
}

// Release: see uct.Iface. Messages cannot be retained.
func (i *iface) Release([]uint64) {}

// EventFD: see uct.Iface.
func (i *iface) EventFD() int {
	if i.event == nil {
		return -1
	}
	return i.event.FD()
}

// Arm: see uct.Iface. The only event is a send of this worker itself, which signals the
// event descriptor.
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
		i.drainEvent()
	}
	i.armed = true
	for _, e := range i.eps {
		e.updateFastPath()
	}
	return ucs.OK
}

// signalEvent signals the event if the iface is armed.
func (i *iface) signalEvent() {
	if !i.armed {
		return
	}
	i.armed = false
	// On an error the worker sleeps until its timeout. The descriptor is open, so there is none.
	_ = i.event.Signal()
	i.signalled = true
}

func (i *iface) drainEvent() {
	i.event.Drain()
	i.signalled = false
}
