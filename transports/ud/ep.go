package ud

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/internal/pending"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// endpoint is a flow to a peer. An open reservation keeps its slot, whatever happens to the flow:
// the user writes into the slot until CommitAM, Abort, Close or a canceling Flush.
type endpoint struct {
	noRMA
	f *iface
	s *arq.Sender
	p *peer
	// opStatus is the status that operations return: OK, NoResource while the pending queue is
	// not empty, or status.
	opStatus   uct.Status
	status     uct.Status // OK until the endpoint is closed, is canceled or fails
	state      epState
	resID      uct.AMID // of the open reservation
	refusedLen int      // length of the last packet that got NoResource
	// refusedPass is iface.passes+1 at that time.
	refusedPass uint32
	inUnacked   bool // in iface.unacked
	inWaiting   bool // in iface.waiting
	lostOps     bool // the flow failed before everything accepted was acknowledged

	resHdr  uint64
	resLen  int // of the open reservation; -1: none
	resSlot uint32

	flow    arq.Flow
	pend    pending.Queue
	flushes []flush
	err     error // the failure to be reported
}

// epState is what an endpoint does with its flow. The states of the flow itself are those of
// arq.State.
//
//	epOpen --stop--> epFinishing --detach--> epDetached
//	   |                                         ^
//	   +-----------------detach------------------+
type epState uint8

const (
	// epOpen: operations are accepted. The first one starts the flow.
	epOpen epState = iota
	// epFinishing: the endpoint is closed or canceled, and operations are refused. The flow
	// exists until everything accepted is acknowledged.
	epFinishing
	// epDetached: the flow has ended and left the Mux, and its number and slots are free.
	epDetached
	numEPStates
)

// epChange is a change of an endpoint's state.
type epChange uint8

const (
	epStop   epChange = iota // the user ends the endpoint
	epDetach                 // the flow ends: Done, Failed, or never started
	numEPChanges
)

var epTransitions = [numEPStates][numEPChanges]epState{
	epOpen:      {epStop: epFinishing, epDetach: epDetached},
	epFinishing: {epStop: epFinishing, epDetach: epDetached},
	epDetached:  {epStop: epDetached, epDetach: epDetached},
}

// change applies a change. It returns false if that has no effect in the current state.
func (s *epState) change(c epChange) bool {
	was := *s
	*s = epTransitions[was][c]
	return *s != was
}

// flush is a remote flush. It completes when all packets before seq are acknowledged.
type flush struct {
	seq arq.Seq
	t   uct.Token
}

// NewEndpoint creates an endpoint. Its flow opens with the first message.
func (f *iface) NewEndpoint(a uct.Address) (uct.Endpoint, error) {
	var to address
	if err := to.parse(a); err != nil {
		return nil, fmt.Errorf("new ud endpoint: %w: %w", err, ucs.ErrUnreachable)
	}
	if ok, why := f.canReach(&to); !ok {
		return nil, fmt.Errorf("new ud endpoint: %s: %w", why, ucs.ErrUnreachable)
	}
	f.EnterWait()
	defer f.Leave()
	if f.state == ifaceClosed {
		return nil, fmt.Errorf("new ud endpoint: iface %w", ucs.ErrClosed)
	}

	p, err := f.getPeer(&to)
	if err != nil {
		return nil, fmt.Errorf("new ud endpoint: %w", err)
	}
	var first [4]byte
	_, _ = rand.Read(first[:]) // never fails
	e := &endpoint{f: f, p: p, resLen: -1}
	e.flow, e.s = f.mux.Open(arq.Seq(binary.LittleEndian.Uint32(first[:])))
	if e.flow == 0 {
		f.removeUnusedPeer(p)
		return nil, fmt.Errorf("new ud endpoint: too many endpoints: %w", ucs.ErrNoResource)
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

// detach frees the slots and the number of a flow that is Done or Failed, or never started.
func (e *endpoint) detach() {
	f := e.f
	if !e.state.change(epDetach) {
		return
	}
	for _, slot := range e.s.Reclaim(nil) {
		f.freeSlot(slot)
	}
	f.mux.RemoveSender(e.flow)
	f.eps[e.s.Tag] = nil
	f.freeEps = append(f.freeEps, e.s.Tag)
	e.p.eps = slices.DeleteFunc(e.p.eps, func(o *endpoint) bool { return o == e })
	f.removeUnusedPeer(e.p)
}

// handleState completes the flushes that are acknowledged, and ends a flow that is Done or
// Failed. It is called after each change of the flow's state. The failure of an endpoint that the
// user has not ended is queued for its report.
func (e *endpoint) handleState() {
	f := e.f
	n := 0
	for n < len(e.flushes) && e.s.Acknowledged(e.flushes[n].seq) {
		f.queueEvent(e.flushes[n].t, ucs.OK)
		n++
	}
	if n > 0 {
		e.flushes = append(e.flushes[:0], e.flushes[n:]...)
	}
	if e.state == epDetached {
		return
	}
	switch e.s.State() {
	case arq.Done:
		f.sendControl(e.p, &arq.Header{A: e.s.CloseCompleteWord()}, nil)
		e.detach()
	case arq.Failed:
		if why := e.s.Reason(); why != arq.Closed {
			f.stats.Inc(statFailed)
			switch {
			case e.err != nil: // a refusal names the reason
			case why == arq.DeviceFailed:
				e.err = nic.ErrDeviceFailed
			default:
				e.err = fmt.Errorf("%w: %v", ucs.ErrPeerFailed, why)
			}
		}
		e.lostOps = e.s.HasUnacked()
		e.detach()
		if e.status != ucs.OK {
			return
		}
		e.rejectOps(ucs.PeerFailed)
		if !f.pairFailure(e) {
			f.failures = append(f.failures, e)
			f.restNeeded = true
		}
	default: // arq.Opening, arq.Open: it goes on
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
	e.state.change(epStop)
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
	return e.state != epDetached && e.s.State() == arq.Opening
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
	if e.state == epDetached || e.s.Ended() {
		return
	}
	if !e.s.Started() {
		e.detach()
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
	if was == ucs.OK && f.state != ifaceClosed {
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
