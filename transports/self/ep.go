package self

import (
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/transports/internal/pending"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// none in endpoint.reserved: no reservation is open.
const none = -1

// endpoint is a send handle of an iface to itself, and at the same time the
// connection by which its messages arrive.
type endpoint struct {
	mapped.RMA
	q              queue
	iface          *iface
	size           sizes
	source         uint32
	state          uct.Status // OK, or what every operation answers
	reserved       int        // bytes of the open reservation, or none
	reservedHeader uint64
	reservedID     uct.AMID

	offering bool // HandlePending runs for this endpoint
	refused  int  // bytes of the last send that found no room
	pend     pending.Queue
}

// PendingAdd: see uct.Endpoint.
func (e *endpoint) PendingAdd(t uct.Token) uct.Status {
	if e.state != ucs.OK {
		return e.state
	}
	if e.pend.Len() == 0 && (e.q.ds == nil || e.q.fits(e.refused)) {
		return ucs.Busy
	}
	e.pend.Add(t)
	e.gate()
	return ucs.OK
}

// PendingPurge: see uct.Endpoint.
func (e *endpoint) PendingPurge(f func(uct.Token)) {
	e.pend.Purge(e.gate, f)
}

// offer lets the handler retry what waits.
func (e *endpoint) offer() {
	e.offering = true
	e.gate()
	e.pend.Offer(e.iface.handler)
	e.offering = false
	e.gate()
}

// Flush ends at once: buffers were copied, and what was accepted lies in
// receive memory.
func (e *endpoint) Flush(k uct.FlushKind, _ uct.Token) uct.Status {
	if e.state == ucs.OK && k == uct.FlushCancel {
		e.end(ucs.Canceled)
		return ucs.OK
	}
	e.Barrier()
	return e.state
}

// Fence: see uct.Endpoint. A CPU may show stores to others in another order.
func (e *endpoint) Fence() uct.Status {
	e.Barrier()
	return e.state
}

// Check: the peer is the caller.
func (e *endpoint) Check(uct.Token) uct.Status { return e.state }

// Close: see uct.Endpoint. What the queue holds is still delivered, before all that
// other endpoints send from now on.
func (e *endpoint) Close() {
	if e.state == ucs.Closed {
		return
	}
	e.end(ucs.Closed)
	e.pend = pending.Queue{}
	e.iface.closing = append(e.iface.closing, e)
}

// end makes every later operation answer st.
func (e *endpoint) end(st uct.Status) {
	e.state = st
	e.reserved = none
	e.gate()
}
