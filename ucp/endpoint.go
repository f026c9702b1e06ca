package ucp

import (
	"fmt"
	"io"
	"math"

	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup"
)

// Address is a packed worker address: plain bytes.
type Address []byte

// String identifies the worker and its context, for logs.
func (a Address) String() string {
	v, err := wireup.Parse(a)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("worker %s of %v with %d interfaces", shortID(v.Worker), v.Owner(), len(v.Entries))
}

// Endpoint is a path to one remote worker: a comparable handle of 16 bytes. Operations
// on a closed Endpoint, and on the zero Endpoint, return ErrClosed. The methods have
// the concurrency of the Worker.
type Endpoint struct {
	t  *thread
	id uint64 // generation and index in Worker.eps
}

// closedThread is the thread of the zero Endpoint. It is closed from the start and never
// written.
var closedThread = func() *thread {
	w := new(thread)
	w.life.enter(workerClosing)
	return w
}()

// noLane is the lane that the fast paths see where only the slow path knows the real
// one. Its short is -1, so no message fits and the fast paths need no further check.
var noLane = lane{laneLife: closedLane}

// thread returns the thread of e, for the slow paths.
func (e Endpoint) thread() *thread {
	if e.t == nil {
		return closedThread
	}
	return e.t
}

// EndpointConfig configures an endpoint. The zero value is valid.
type EndpointConfig struct {
	// OnFailure is called once if the endpoint fails. It runs in progress, and
	// before Close or Abort of the endpoint, or Close of its worker, returns.
	// Inside a callback these return first; the call follows at the end of that
	// callback.
	OnFailure func(Endpoint, error)
	// Eager connects the endpoint in NewEndpoint instead of at the first operation.
	// UCX_CONNECT=eager sets it for all endpoints.
	Eager bool
}

// epState is the life of an endpoint:
//
//	free ──► idle ──► active ──► failed
//	  ▲        │         │          │
//	  └────────┴─────────┴──────────┘
//
// No slot references an idle endpoint, so its end needs to search none.
type epState uint8

const (
	epFree epState = iota
	epIdle
	epActive
	epFailed // operations are refused with epSlot.status
	numEpStates
)

// epTransitions lists the states that may follow each state.
var epTransitions = [numEpStates][numEpStates]bool{
	epFree:   {epIdle: true},
	epIdle:   {epFree: true, epActive: true},
	epActive: {epFree: true, epFailed: true},
	epFailed: {epFree: true},
}

// enter changes the state. It panics if that state must not follow.
func (s *epSlot) enter(to epState) {
	if !epTransitions[s.state][to] {
		panic(fmt.Sprintf("ucp: an endpoint in state %d enters state %d", s.state, to))
	}
	s.state = to
}

// enterEndpoint changes the state of endpoint k, and counts it.
func (w *thread) enterEndpoint(k uint32, to epState) {
	s := &w.eps[k]
	w.numEps[s.state]--
	s.enter(to)
	w.numEps[to]++
}

// epSlot is the state of an endpoint. An unused endpoint costs these 16 bytes, without
// a pointer, and its address.
type epSlot struct {
	gen    uint32
	lane   uint32 // 0: not connected, or failed
	peer   wireup.PeerID
	state  epState
	status ucs.Status // OK, or the status with which operations are refused
	lost   bool       // of a failed endpoint: an operation had no acknowledgement, or was refused since
}

// epCold is the state that few endpoints have.
type epCold struct {
	onFailure func(Endpoint, error)
	err       error                  // of the endpoint
	lane      uint32                 // lane at the time of the failure
	owned     map[io.Closer]struct{} // closed with the endpoint
}

// coldEps has the epCold of endpoints, by index.
type coldEps map[uint32]*epCold

// of returns the state of endpoint k, and creates it if needed.
func (x coldEps) of(k uint32) *epCold {
	c := x[k]
	if c == nil {
		c = new(epCold)
		x[k] = c
	}
	return c
}

// own registers c to be closed with endpoint k, unless disown removes it before.
func (x coldEps) own(k uint32, c io.Closer) {
	o := x.of(k)
	if o.owned == nil {
		o.owned = make(map[io.Closer]struct{})
	}
	o.owned[c] = struct{}{}
}

func (x coldEps) disown(k uint32, c io.Closer) {
	if o := x[k]; o != nil {
		delete(o.owned, c)
	}
}

// NewEndpoint creates an endpoint to the worker with address a, which it copies. It
// connects and sends nothing before the first operation, unless eager connection is
// configured.
func (w *Worker) NewEndpoint(a Address, c EndpointConfig) (Endpoint, error) {
	w.t.lock()
	defer w.t.unlock()
	if w.t.life.closing() {
		return Endpoint{}, fmt.Errorf("new endpoint: %w", ErrClosed)
	}
	peer, err := w.t.addPeer(a)
	if err != nil {
		return Endpoint{}, fmt.Errorf("new endpoint: %w: %w", ErrInvalid, err)
	}
	k := w.t.newEpSlot(peer)
	e := w.t.handle(k)
	if c.Eager || w.eager {
		if st := w.t.connect(k); st != ucs.OK {
			err := w.t.reason(k, st)
			w.t.freeEndpoint(k)
			return Endpoint{}, fmt.Errorf("new endpoint: %w", err)
		}
	}
	if c.OnFailure != nil {
		w.t.cold.of(k).onFailure = c.OnFailure
	}
	return e, nil
}

// newEpSlot creates an endpoint to peer, and takes over the caller's reference.
func (w *thread) newEpSlot(peer wireup.PeerID) uint32 {
	w.publish.lock()
	defer w.publish.unlock()
	k := w.epFree
	if k != 0 {
		w.epFree = uint32(w.eps[k].peer)
	} else {
		k = uint32(len(w.eps))
		w.eps = append(w.eps, epSlot{gen: 1})
		if !w.am.multi {
			w.fastEps = w.eps
		}
	}
	w.enterEndpoint(k, epIdle)
	w.eps[k].peer = peer
	return k
}

// releaseEpSlot releases the slot of endpoint k, which has become epFree, and its reference to the
// peer. In a Thread's table, where a slot has the index of the worker's endpoint, it keeps the
// generation: the endpoint stays closed there.
func (w *thread) releaseEpSlot(k uint32) {
	w.publish.lock()
	s := &w.eps[k]
	peer := s.peer
	if w.parent != nil {
		*s = epSlot{gen: s.gen}
	} else {
		*s = epSlot{gen: s.gen + 1, peer: wireup.PeerID(w.epFree)}
		w.epFree = k
	}
	w.publish.unlock()
	w.releasePeer(peer)
}

// handle returns the Endpoint of slot k.
func (w *thread) handle(k uint32) Endpoint {
	return Endpoint{w, uint64(w.eps[k].gen)<<32 | uint64(k)}
}

// endpoint returns e's slot, 0 if e is closed. In a Thread the first call for e allocates the slot.
func (w *thread) endpoint(e Endpoint) uint32 {
	k, gen := uint32(e.id), uint32(e.id>>32)
	switch {
	case e.t != w:
		return 0
	case int(k) >= len(w.eps) || w.eps[k].gen != gen:
		if w.parent != nil && !w.life.closing() {
			return w.attach(k, gen)
		}
		return 0
	case w.eps[k].state == epFree:
		return 0
	}
	return k
}

// closedErr returns the reason why e has no slot.
func (e Endpoint) closedErr() error {
	if e.id == foreignEndpoint {
		return errForeign
	}
	return ErrClosed
}

// connect opens the lane of endpoint k at its first operation. If no transport reaches
// the peer, the endpoint fails.
func (w *thread) connect(k uint32) ucs.Status {
	s := &w.eps[k]
	if s.state != epIdle {
		return s.status
	}
	w.enterEndpoint(k, epActive)
	lane, refused := w.openBest(s.peer)
	if lane != 0 {
		s.lane = lane
		return ucs.OK
	}
	w.failEndpoint(k, ucs.Unreachable, &UnreachableError{shortID(w.peers.UUID(s.peer)), refused})
	w.failTiedRecvs()
	return ucs.Unreachable
}

// peerName returns the name of endpoint k's remote worker in errors.
func (w *thread) peerName(k uint32) string {
	if k == 0 || w.eps[k].state == epFree {
		return ""
	}
	return shortID(w.peers.UUID(w.eps[k].peer))
}

// EndpointInfo describes an endpoint, for logs and tools.
type EndpointInfo struct {
	// Peer is the remote worker.
	Peer string
	// Lanes that are open.
	Lanes []LaneInfo
	// Err is why the endpoint failed; nil if it has not.
	Err error
}

// LaneInfo describes a lane.
type LaneInfo struct {
	Transport, Device string
	// Uses are the purposes of the lane: "am" for messages, "rma" for put and get, "amo" for
	// atomics. The latter two are those of the endpoint's remote keys.
	Uses []string
	// Short is the maximum length in bytes of a tag message that is sent as one
	// short operation. Whole is the maximum length that is sent in one piece.
	Short, Whole int
}

// Info returns the current state of the endpoint.
func (e Endpoint) Info() EndpointInfo {
	w := e.thread()
	w.lock()
	defer w.unlock()
	k := w.endpoint(e)
	if k == 0 {
		return EndpointInfo{Err: ErrClosed}
	}
	i := EndpointInfo{Peer: w.peerName(k)}
	uses := [wireup.NumPurposes]map[uint32]bool{{w.eps[k].lane: true}, {}, {}}
	if c := w.cold[k]; c != nil {
		i.Err = c.err
		for o := range c.owned {
			if key, ok := o.(*RemoteKey); ok {
				for p, l := range map[wireup.Purpose]*keyLane{wireup.ForRMA: key.rma, wireup.ForAMO: key.atomic} {
					if l != nil {
						uses[p][l.lane] = true
					}
				}
			}
		}
	}
	for n := w.laneOf[w.eps[k].peer]; n != 0; n = w.lanes[n].next {
		l := &w.lanes[n]
		info := w.ifaces[l.iface].info
		lane := LaneInfo{Transport: info.Transport, Device: info.Device, Short: l.ifaceMaxShort, Whole: max(l.ifaceMaxShort, l.maxBcopy)}
		for p := range wireup.NumPurposes {
			if uses[p][n] {
				lane.Uses = append(lane.Uses, p.Short())
			}
		}
		i.Lanes = append(i.Lanes, lane)
	}
	return i
}

// ProtocolRange says how messages or transfers of a range of lengths are carried out.
type ProtocolRange struct {
	// Op is UCX's name of the operation: "tag_send", "tag_send_sync", "am_send", "put", "get".
	Op string
	// Min and Max are the lengths in bytes, both included; math.MaxUint64 is no limit.
	Min, Max uint64
	// Protocol is UCX's name: "egr/short", "egr/bcopy", "egr/zcopy", "egr/multi" (fragments),
	// "rndv"; for put and get "short", "bcopy", "zcopy", and "am", emulation by messages.
	Protocol string
	// Lane is the transport and device, "shm/memory".
	Lane string
}

// Protocols returns how the endpoint carries out its operations, by ascending lengths: sends
// without a header, and put and get of memory that is not registered, by key k. k may be nil. An
// endpoint that is not connected has none.
func (e Endpoint) Protocols(k *RemoteKey) (ranges []ProtocolRange) {
	w := e.thread()
	w.lock()
	defer w.unlock()
	slot := w.endpoint(e)
	if slot == 0 || w.eps[slot].lane == 0 {
		return nil
	}
	op, lane, next, all := "", "", uint64(0), false
	begin := func(o string, i uint32) { op, lane, next, all = o, w.laneName(i), 0, false }
	upTo := func(last uint64, protocol string) { // the next range; none if those before reach as far
		if !all && last >= next {
			ranges = append(ranges, ProtocolRange{op, next, last, protocol, lane})
			next, all = last+1, last == math.MaxUint64
		}
	}
	i := w.eps[slot].lane
	l := &w.lanes[i]
	eager, short, bcopy := l.maxEager, uint64(l.ifaceMaxShort), uint64(l.maxBcopy)
	if w.ctx.features&FeatureTag != 0 {
		begin("tag_send", i)
		heap := l.maxHeapEager
		upTo(min(short, heap), "egr/short")
		upTo(min(bcopy, heap), "egr/bcopy")
		upTo(heap, "egr/multi")
		upTo(math.MaxUint64, "rndv")
		begin("tag_send_sync", i)
		upTo(min(max(min(short, scratchSize), wire.SyncHeaderLen)-wire.SyncHeaderLen, eager), "egr/short")
		upTo(min(bcopy-wire.SyncHeaderLen, eager), "egr/bcopy")
		upTo(math.MaxUint64, "rndv")
	}
	if w.ctx.features&FeatureAM != 0 {
		begin("am_send", i)
		upTo(min(short, eager), "egr/short")
		if z := l.zcopy; z.max > 0 {
			upTo(min(bcopy, eager, uint64(z.min-1)), "egr/bcopy")
			upTo(min(uint64(z.max), eager), "egr/zcopy")
		}
		upTo(min(bcopy, eager), "egr/bcopy")
		upTo(max(min(bcopy, eager), l.maxHeapEager), "egr/multi")
		upTo(math.MaxUint64, "rndv") // or, up to eager, in fragments, if the receiver cannot fetch it at once
	}
	if k == nil || k.closed || k.rma == nil {
		return ranges
	}
	for _, t := range []struct {
		op string
		forms
	}{{"put", k.rma.put}, {"get", k.rma.get}} {
		begin(t.op, k.rma.lane)
		copied := uint64(math.MaxUint64)
		if from := w.zcopyFrom.any; t.zcopy && from < math.MaxUint64 {
			copied = max(from, t.short+1) - 1
		}
		if k.rma.emulOnly {
			upTo(math.MaxUint64, "am")
		}
		if t.bcopy == 0 || t.short >= math.MaxInt { // in one operation, or in several
			upTo(copied, "short")
		}
		if t.short > 0 {
			upTo(t.short, "short")
		}
		upTo(copied, "bcopy")
		upTo(math.MaxUint64, "zcopy")
	}
	return ranges
}
