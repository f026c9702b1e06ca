package self

import (
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/transports/internal/pending"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// none is the value of endpoint.reserved without a reservation.
const none = -1

// endpoint is a send handle of an iface to itself. It is also the connection on which
// its messages arrive.
type endpoint struct {
	mapped.RMA
	q              queue
	iface          *iface
	size           sizes
	source         uint32
	state          uct.Status // OK, or the status that every operation returns
	reserved       int        // bytes of the open reservation, or none
	reservedHeader uint64
	reservedID     uct.AMID

	dispatching bool // HandlePending is running for this endpoint
	refusedLen  int  // bytes of the last message that found no room
	pend        pending.Queue
}

// PendingAdd: see uct.Endpoint.
func (e *endpoint) PendingAdd(t uct.Token) uct.Status {
	if e.state != ucs.OK {
		return e.state
	}
	if e.pend.Len() == 0 && (e.q.ds == nil || e.q.fits(e.refusedLen)) {
		return ucs.Busy
	}
	e.pend.Add(t)
	e.updateFastPath()
	return ucs.OK
}

// PendingPurge: see uct.Endpoint.
func (e *endpoint) PendingPurge(f func(uct.Token)) {
	e.pend.Purge(e.updateFastPath, f)
}

// dispatchPending lets the handler retry the pending operations.
func (e *endpoint) dispatchPending() {
	e.dispatching = true
	e.updateFastPath()
	e.pend.Dispatch(e.iface.handler)
	e.dispatching = false
	e.updateFastPath()
}

// Flush completes at once: buffers were copied, and sent messages lie in the receive
// queue.
func (e *endpoint) Flush(k uct.FlushKind, _ uct.Token) uct.Status {
	if e.state == ucs.OK && k == uct.FlushCancel {
		e.rejectOps(ucs.Canceled)
		return ucs.OK
	}
	e.Barrier()
	return e.state
}

// Fence: see uct.Endpoint. Other CPUs may otherwise see stores in another order.
func (e *endpoint) Fence() uct.Status {
	e.Barrier()
	return e.state
}

// Check returns the endpoint's state: the peer is this worker itself.
func (e *endpoint) Check(uct.Token) uct.Status { return e.state }

// Close: see uct.Endpoint. Messages in the queue are still delivered, and before all
// messages that other endpoints send after Close.
func (e *endpoint) Close() {
	if e.state == ucs.Closed {
		return
	}
	e.rejectOps(ucs.Closed)
	e.pend = pending.Queue{}
	e.iface.closing = append(e.iface.closing, e)
}

// rejectOps makes all later operations return st.
func (e *endpoint) rejectOps(st uct.Status) {
	e.state = st
	e.reserved = none
	e.updateFastPath()
}
