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
	// gate is the status that operations return: OK, NoResource while the pending queue is
	// not empty, or status.
	gate   uct.Status
	status uct.Status
	resID  uct.AMID // of the open reservation
	want   int      // length of the last packet that got NoResource
	// shortAt is iface.passes+1 at that time.
	shortAt uint32
	busy    bool // in iface.busy
	waits   bool // in iface.waiting
	gone    bool // the flow has ended and was removed from the Mux

	resHdr uint64
	resLen int // of the open reservation; -1: none
	slot   uint32

	num     arq.Flow
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
	p, err := f.meet(to)
	if err != nil {
		return nil, err
	}
	var first [4]byte
	_, _ = rand.Read(first[:]) // never fails
	e := &endpoint{f: f, p: p, resLen: -1}
	e.num, e.s = f.mux.Open(arq.Seq(binary.LittleEndian.Uint32(first[:])))
	if e.num == 0 {
		f.part(p)
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
	e.work()
	f.tick(e)
}

// work adds e to iface.busy and has its timer set.
func (e *endpoint) work() {
	f := e.f
	if !e.busy {
		e.busy = true
		f.busy = append(f.busy, e)
	}
	f.due = min(f.due, e.s.Deadline())
	f.wakeAt(f.due)
}

// forget frees the slots and the number of a flow that is Done or Failed.
func (e *endpoint) forget() {
	f := e.f
	if e.gone {
		return
	}
	e.gone = true
	for _, slot := range e.s.Reclaim(nil) {
		f.done(slot)
	}
	f.mux.Forget(e.num)
	f.eps[e.s.Tag] = nil
	f.freeEps = append(f.freeEps, e.s.Tag)
	e.p.drop(e)
	f.part(e.p)
}

// settle completes the flushes that are acknowledged, and ends a flow that is Done or
// Failed. It is called after each change of the flow's state.
func (e *endpoint) settle() {
	n := 0
	for n < len(e.flushes) && e.s.Acknowledged(e.flushes[n].seq) {
		e.f.end(e.flushes[n].t, ucs.OK)
		n++
	}
	if n > 0 {
		e.flushes = append(e.flushes[:0], e.flushes[n:]...)
	}
	switch {
	case e.s.State() == arq.Done && !e.gone:
		e.f.control(e.p, &arq.Head{A: e.s.Farewell()}, nil)
		e.forget()
	case e.s.State() == arq.Failed && !e.gone:
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
	e.forget()
	if e.status != ucs.OK {
		return
	}
	e.shut(ucs.PeerFailed)
	if !f.failTogether(e) {
		f.failing = append(f.failing, e)
		f.more = true
	}
}

// shut makes all further operations return st and completes the waiting flushes. An open
// reservation keeps its slot.
func (e *endpoint) shut(st uct.Status) {
	end := st
	if st == ucs.Closed {
		end = ucs.Canceled
	}
	for _, w := range e.flushes {
		e.f.end(w.t, end)
	}
	e.flushes = nil
	e.status, e.gate = st, st
}

// end queues the completion of an operation.
func (f *iface) end(t uct.Token, st uct.Status) {
	if t != 0 {
		f.events = append(f.events, uct.Event{Token: t, Status: st})
		f.more = true
	}
}

// Flush completes at once, except FlushRemote, which waits for acknowledgements.
func (e *endpoint) Flush(k uct.FlushKind, t uct.Token) uct.Status {
	f := e.f
	if !f.enter() {
		return ucs.NoResource
	}
	defer f.leave()
	switch {
	case e.status != ucs.OK:
		return e.status
	case k == uct.FlushCancel:
		e.drop()
		e.shut(ucs.Canceled)
		e.finish(arq.EndFlow)
		return ucs.OK
	case k == uct.FlushLocal || e.s.Idle():
		return ucs.OK
	}
	if t != 0 {
		e.flushes = append(e.flushes, flush{e.s.Next(), t})
	}
	if e.s.State() == arq.Open {
		f.control(e.p, &arq.Head{A: e.s.Poke()}, nil)
	}
	return ucs.InProgress
}

// Fence does nothing, since an endpoint delivers in order.
func (e *endpoint) Fence() uct.Status {
	e.f.enterWait()
	defer e.f.leave()
	return e.status
}

// Connecting: see uct.Handshaker.
func (e *endpoint) Connecting() bool {
	e.f.enterWait()
	defer e.f.leave()
	return !e.gone && e.s.State() == arq.Opening
}

// Check sends the peer a liveness probe and returns the current status. If the peer does
// not reply, the endpoint fails later.
func (e *endpoint) Check(uct.Token) uct.Status {
	f := e.f
	if !f.enter() {
		return ucs.NoResource
	}
	defer f.leave()
	if e.status == ucs.OK && e.s.Started() && e.s.Idle() {
		f.now = ucs.Now()
		e.s.Ask(f.now)
		e.work()
		f.tick(e)
	}
	return e.status
}

// finish sends an End after all accepted packets. It removes a flow that never started.
func (e *endpoint) finish(reason uint8) {
	if e.gone || e.s.Ended() {
		return
	}
	if !e.s.Started() {
		e.forget()
		return
	}
	e.f.now = ucs.Now()
	e.s.PushEnd(reason)
	e.pump()
	e.f.flushPosts()
	e.work()
}

// Close closes the endpoint. Accepted messages are still delivered.
func (e *endpoint) Close() {
	f := e.f
	f.enterWait()
	defer f.leave()
	if e.status == ucs.Closed {
		return
	}
	was := e.status
	e.pend = pending.Queue{}
	e.drop()
	e.shut(ucs.Closed)
	if was == ucs.OK && !f.closed {
		e.finish(arq.EndFlow)
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
