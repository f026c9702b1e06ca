package ud

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/transports/internal/pending"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// endpoint is a flow to a peer. status is OK until the endpoint is closed, is canceled or
// fails. The flow may exist longer: after Close, until everything accepted is acknowledged.
type endpoint struct {
	noRMA
	f *iface
	s *arq.Sender
	p *peer
	// opStatus is the status that operations return: OK, NoResource while the pending queue is
	// not empty, or status.
	opStatus   uct.Status
	status     uct.Status
	resID      uct.AMID // of the open reservation
	refusedLen int      // length of the last packet that got NoResource
	// refusedPass is iface.passes+1 at that time.
	refusedPass uint32
	inUnacked   bool // in iface.unacked
	inWaiting   bool // in iface.waiting
	removed     bool // the flow has ended and was removed from the Mux

	resHdr  uint64
	resLen  int // of the open reservation; -1: none
	resSlot uint32

	flow    arq.Flow
	pend    pending.Queue
	flushes []flush
	err     error // the failure to be reported
}

// flush is a remote flush. It completes when all packets before seq are acknowledged.
type flush struct {
	seq arq.Seq
	t   uct.Token
}

func (f *iface) newEndpoint(to *address) (*endpoint, error) {
	p, err := f.getPeer(to)
	if err != nil {
		return nil, err
	}
	var first [4]byte
	_, _ = rand.Read(first[:]) // never fails
	e := &endpoint{f: f, p: p, resLen: -1}
	e.flow, e.s = f.mux.Open(arq.Seq(binary.LittleEndian.Uint32(first[:])))
	if e.flow == 0 {
		f.removeUnusedPeer(p)
		return nil, fmt.Errorf("too many endpoints: %w", ucs.ErrNoResource)
	}
	if n := len(f.freeEps) - 1; n >= 0 {
		e.s.Tag, f.freeEps = f.freeEps[n], f.freeEps[:n]
		f.eps[e.s.Tag] = e
	} else {
		e.s.Tag = uint32(len(f.eps))
		f.eps = append(f.eps, e)
	}
	p.eps = append(p.eps, e)
	return e, nil
}

// start opens the flow.
func (e *endpoint) start() {
	f := e.f
	f.now = ucs.Now()
	e.s.Start(f.now)
	f.stats.Inc(statConnected)
	e.setTimer()
	f.expireTimer(e)
}

// setTimer adds e to iface.unacked and has its timer set.
func (e *endpoint) setTimer() {
	f := e.f
	if !e.inUnacked {
		e.inUnacked = true
		f.unacked = append(f.unacked, e)
	}
	f.nextDeadline = min(f.nextDeadline, e.s.Deadline())
	f.SetAlarm(f.nextDeadline)
}

// unregister frees the slots and the number of a flow that is Done or Failed.
func (e *endpoint) unregister() {
	f := e.f
	if e.removed {
		return
	}
	e.removed = true
	for _, slot := range e.s.Reclaim(nil) {
		f.freeSlot(slot)
	}
	f.mux.RemoveSender(e.flow)
	f.eps[e.s.Tag] = nil
	f.freeEps = append(f.freeEps, e.s.Tag)
	e.p.removeEP(e)
	f.removeUnusedPeer(e.p)
}

// handleState completes the flushes that are acknowledged, and ends a flow that is Done or
// Failed. It is called after each change of the flow's state.
func (e *endpoint) handleState() {
	n := 0
	for n < len(e.flushes) && e.s.Acknowledged(e.flushes[n].seq) {
		e.f.queueEvent(e.flushes[n].t, ucs.OK)
		n++
	}
	if n > 0 {
		e.flushes = append(e.flushes[:0], e.flushes[n:]...)
	}
	switch {
	case e.s.State() == arq.Done && !e.removed:
		e.f.sendControl(e.p, &arq.Header{A: e.s.CloseCompleteWord()}, nil)
		e.unregister()
	case e.s.State() == arq.Failed && !e.removed:
		e.fail()
	}
}

// fail ends a failed flow and queues the report of the failure. A closed endpoint's
// failure is not reported.
func (e *endpoint) fail() {
	f := e.f
	if r := e.s.Reason(); r != arq.Closed {
		f.stats.Inc(statFailed)
		e.err = fmt.Errorf("%w: %v", ucs.ErrPeerFailed, r)
	}
	e.unregister()
	if e.status != ucs.OK {
		return
	}
	e.rejectOps(ucs.PeerFailed)
	if !f.pairFailure(e) {
		f.failures = append(f.failures, e)
		f.restNeeded = true
	}
}

// rejectOps makes all further operations return st and completes the waiting flushes. An open
// reservation keeps its slot.
func (e *endpoint) rejectOps(st uct.Status) {
	end := st
	if st == ucs.Closed {
		end = ucs.Canceled
	}
	for _, w := range e.flushes {
		e.f.queueEvent(w.t, end)
	}
	e.flushes = nil
	e.status, e.opStatus = st, st
}

// queueEvent queues the completion of an operation.
func (f *iface) queueEvent(t uct.Token, st uct.Status) {
	if t != 0 {
		f.events = append(f.events, uct.Event{Token: t, Status: st})
		f.restNeeded = true
	}
}

// Flush completes at once, except FlushRemote, which waits for acknowledgements.
func (e *endpoint) Flush(k uct.FlushKind, t uct.Token) uct.Status {
	f := e.f
	if !f.Enter() {
		return ucs.NoResource
	}
	defer f.Leave()
	switch {
	case e.status != ucs.OK:
		return e.status
	case k == uct.FlushCancel:
		e.dropReservation()
		e.rejectOps(ucs.Canceled)
		e.sendEnd(arq.EndFlow)
		return ucs.OK
	case k == uct.FlushLocal || e.s.Idle():
		return ucs.OK
	}
	if t != 0 {
		e.flushes = append(e.flushes, flush{e.s.Next(), t})
	}
	if e.s.State() == arq.Open {
		f.sendControl(e.p, &arq.Header{A: e.s.ProbeWord()}, nil)
	}
	return ucs.InProgress
}

// Fence does nothing, since an endpoint delivers in order.
func (e *endpoint) Fence() uct.Status {
	e.f.EnterWait()
	defer e.f.Leave()
	return e.status
}

// Connecting: see uct.Handshaker.
func (e *endpoint) Connecting() bool {
	e.f.EnterWait()
	defer e.f.Leave()
	return !e.removed && e.s.State() == arq.Opening
}

// Check sends the peer a liveness probe and returns the current status. If the peer does
// not reply, the endpoint fails later.
func (e *endpoint) Check(uct.Token) uct.Status {
	f := e.f
	if !f.Enter() {
		return ucs.NoResource
	}
	defer f.Leave()
	if e.status == ucs.OK && e.s.Started() && e.s.Idle() {
		f.now = ucs.Now()
		e.s.RequestProbe(f.now)
		e.setTimer()
		f.expireTimer(e)
	}
	return e.status
}

// sendEnd sends an End after all accepted packets. It removes a flow that never started.
func (e *endpoint) sendEnd(reason uint8) {
	if e.removed || e.s.Ended() {
		return
	}
	if !e.s.Started() {
		e.unregister()
		return
	}
	e.f.now = ucs.Now()
	e.s.PushEnd(reason)
	e.transmitReady()
	e.f.flushPosts()
	e.setTimer()
}

// Close closes the endpoint. Accepted messages are still delivered.
func (e *endpoint) Close() {
	f := e.f
	f.EnterWait()
	defer f.Leave()
	if e.status == ucs.Closed {
		return
	}
	was := e.status
	e.pend = pending.Queue{}
	e.dropReservation()
	e.rejectOps(ucs.Closed)
	if was == ucs.OK && !f.closed {
		e.sendEnd(arq.EndFlow)
	}
}

// noRMA implements the operations that ud does not support.
type noRMA struct{}

func (noRMA) PutShort([]byte, uint64, uct.RKey) uct.Status            { return ucs.Unsupported }
func (noRMA) PutUint64(uint64, uint64, uct.RKey) uct.Status           { return ucs.Unsupported }
func (noRMA) PutBcopy([]byte, uint64, uct.RKey, uct.Token) uct.Status { return ucs.Unsupported }
func (noRMA) PutZcopy([]uct.Vec, uint64, uct.RKey, uct.Token) uct.Status {
	return ucs.Unsupported
}
func (noRMA) GetShort([]byte, uint64, uct.RKey) uct.Status { return ucs.Unsupported }
func (noRMA) GetUint64(uint64, uct.RKey, uct.Token) (uint64, uct.Status) {
	return 0, ucs.Unsupported
}
func (noRMA) GetBcopy([]byte, uint64, uct.RKey, uct.Token) uct.Status { return ucs.Unsupported }
func (noRMA) GetZcopy([]uct.Vec, uint64, uct.RKey, uct.Token) uct.Status {
	return ucs.Unsupported
}
func (noRMA) Atomic32(uct.AtomicOp, uint32, uint64, uct.RKey) uct.Status { return ucs.Unsupported }
func (noRMA) Atomic64(uct.AtomicOp, uint64, uint64, uct.RKey) uct.Status { return ucs.Unsupported }
func (noRMA) Fetch32(uct.AtomicOp, uint32, uint32, uint64, uct.RKey, uct.Token) (uint32, uct.Status) {
	return 0, ucs.Unsupported
}

func (noRMA) Fetch64(uct.AtomicOp, uint64, uint64, uint64, uct.RKey, uct.Token) (uint64, uct.Status) {
	return 0, ucs.Unsupported
}
