package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// emulEndpoint emulates puts, gets and atomics by active messages on a lane whose transport
// lacks them. The owner's worker carries them out in its Progress, in the order in which
// they arrive. emulEndpoint implements only this part of uct.Endpoint. The key is an emulKey.
//
// A put, or an atomic without a result, completes when its message is sent. Whether it
// succeeded is returned by the lane's flush.
//
// Source: UCX's sw_rma and sw_amo.
type emulEndpoint struct {
	uct.Endpoint // nil: the other methods are not called
	w            *thread
	lane         uint32
	limit        int  // longest put or get in one message
	hasRMA       bool // the lane's transport has RMA or AMO operations too

	// Requests are numbered from 1 in the order in which they are sent.
	sent        uint64
	handled     uint64 // the owner has carried out all requests up to this one
	posted      uint64 // the last request without a reply
	atomics     uint64 // the last atomic
	flushed     uint64 // the last request that a completed flush covers
	stallUntil  uint64 // the lane is stalled until this request is carried out
	outstanding int    // replies that are outstanding, without those to flushes
	fence       uint32 // the lane is stalled until this fence over several lanes completes; 0: none
	err         ucs.Status
	stalled     *stalledEndpoint // allocated when first needed
}

const (
	// emulMaxPiece is the longest put or get of one message.
	emulMaxPiece = 64 << 10
	// emulMaxReplies is the number of outstanding replies of a lane. An owner that gets
	// NoResource keeps copies of at most so many pieces.
	emulMaxReplies = 32
)

// emulLimit returns the longest put or get over a lane whose messages hold bcopy bytes.
func emulLimit(bcopy int) int { return min(bcopy-wire.EmulKeyLen, emulMaxPiece) }

// emulLane returns the emulation endpoint of lane i, and creates it if needed.
func (w *thread) emulLane(i uint32) *emulEndpoint {
	l := &w.lanes[i]
	if l.emul == nil {
		l.emul = &emulEndpoint{w: w, lane: i}
		l.emul.setTransport(w.ifaces[l.iface], l)
	}
	return l.emul
}

// setTransport adapts e to its lane's transport, that of wi.
func (e *emulEndpoint) setTransport(wi *workerIface, l *lane) {
	e.limit = emulLimit(l.maxBcopy)
	e.hasRMA = wi.iface.Attr().Ops&(uct.OpsPut|uct.OpsGet|uct.OpAtomics) != 0
}

// request reserves a message of n bytes and writes the key. The caller fills in the
// rest and commits.
func (e *emulEndpoint) request(id uct.AMID, addr uint64, n int, key uct.RKey) (uct.Endpoint, []byte, ucs.Status) {
	ep := e.w.lanes[e.lane].ep
	b, st := ep.ReserveAM(id, addr, n)
	if st != ucs.OK {
		return nil, nil, st
	}
	binary.LittleEndian.PutUint64(b, uint64(key))
	return ep, b, ucs.OK
}

// PutShort sends p in a message.
func (e *emulEndpoint) PutShort(p []byte, addr uint64, k uct.RKey) uct.Status {
	ep, b, st := e.request(wire.Put, addr, wire.EmulKeyLen+len(p), k)
	if st != ucs.OK {
		return st
	}
	copy(b[wire.EmulKeyLen:], p)
	e.commit(ep, wire.EmulKeyLen+len(p))
	return ucs.OK
}

// PutBcopy is PutShort.
func (e *emulEndpoint) PutBcopy(p []byte, addr uint64, k uct.RKey, _ uct.Token) uct.Status {
	return e.PutShort(p, addr, k)
}

// PutUint64 puts eight bytes, which the owner stores atomically if they are aligned.
func (e *emulEndpoint) PutUint64(v, addr uint64, k uct.RKey) uct.Status {
	ep, b, st := e.request(wire.Put, addr, wire.EmulKeyLen+8, k)
	if st != ucs.OK {
		return st
	}
	binary.LittleEndian.PutUint64(b[wire.EmulKeyLen:], v)
	e.commit(ep, wire.EmulKeyLen+8)
	return ucs.OK
}

// commit sends a request without a reply.
func (e *emulEndpoint) commit(ep uct.Endpoint, n int) {
	ep.CommitAM(n)
	e.sent++
	e.posted = e.sent
}

// GetBcopy requests len(p) bytes.
func (e *emulEndpoint) GetBcopy(p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	return e.get(emulOp{kind: emulGet, token: t, addr: addr, left: uint64(len(p))}, len(p), addr, k)
}

// GetUint64 requests eight bytes, which the owner loads atomically if they are aligned.
func (e *emulEndpoint) GetUint64(addr uint64, k uct.RKey, t uct.Token) (uint64, uct.Status) {
	return 0, e.get(emulOp{kind: emulGetWord, token: t}, 8, addr, k)
}

func (e *emulEndpoint) get(o emulOp, n int, addr uint64, k uct.RKey) uct.Status {
	ep, b, st := e.requestReply(wire.Get, addr, wire.GetLen, k)
	if st != ucs.OK {
		return st
	}
	binary.LittleEndian.PutUint64(b[8:], e.addOp(o))
	binary.LittleEndian.PutUint64(b[16:], uint64(n))
	ep.CommitAM(wire.GetLen)
	return ucs.InProgress
}

// requestReply is request for a request with a reply. With emulMaxReplies replies outstanding it stalls
// the lane until one arrives.
func (e *emulEndpoint) requestReply(id uct.AMID, addr uint64, n int, k uct.RKey) (uct.Endpoint, []byte, ucs.Status) {
	ep, b, st := e.request(id, addr, n, k)
	if st == ucs.OK && e.outstanding >= emulMaxReplies {
		ep.Abort()
		e.w.stallLane(e.lane)
		return nil, nil, ucs.NoResource
	}
	return ep, b, st
}

// addOp records operation o, whose request is sent next, and returns its id.
func (e *emulEndpoint) addOp(o emulOp) uint64 {
	e.sent++
	if o.kind != emulSync {
		e.outstanding++
	}
	o.lane, o.number = e.lane, e.sent
	return e.w.emul.alloc(o)
}

// Atomic32 posts a 32-bit atomic.
func (e *emulEndpoint) Atomic32(op uct.AtomicOp, v uint32, addr uint64, k uct.RKey) uct.Status {
	return e.atomic(wire.Atomic{Op: op, Width: 4, Operand: uint64(v)}, addr, k)
}

// Atomic64 posts a 64-bit atomic.
func (e *emulEndpoint) Atomic64(op uct.AtomicOp, v, addr uint64, k uct.RKey) uct.Status {
	return e.atomic(wire.Atomic{Op: op, Width: 8, Operand: v}, addr, k)
}

func (e *emulEndpoint) atomic(a wire.Atomic, addr uint64, k uct.RKey) uct.Status {
	ep, b, st := e.request(wire.AtomicRequest, addr, wire.AtomicLen, k)
	if st != ucs.OK {
		return st
	}
	a.Key = uint64(k)
	a.Put(b)
	e.commit(ep, wire.AtomicLen)
	e.atomics = e.sent
	return ucs.OK
}

// Fetch32 requests a 32-bit atomic and the previous value.
func (e *emulEndpoint) Fetch32(op uct.AtomicOp, v, cmp uint32, addr uint64, k uct.RKey, t uct.Token) (uint32, uct.Status) {
	return 0, e.fetch(wire.Atomic{Op: op, Width: 4, Operand: uint64(v), Compare: uint64(cmp)}, addr, k, t)
}

// Fetch64 requests a 64-bit atomic and the previous value.
func (e *emulEndpoint) Fetch64(op uct.AtomicOp, v, cmp, addr uint64, k uct.RKey, t uct.Token) (uint64, uct.Status) {
	return 0, e.fetch(wire.Atomic{Op: op, Width: 8, Operand: v, Compare: cmp}, addr, k, t)
}

func (e *emulEndpoint) fetch(a wire.Atomic, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	ep, b, st := e.requestReply(wire.AtomicRequest, addr, wire.AtomicLen, k)
	if st != ucs.OK {
		return st
	}
	a.Key, a.ID = uint64(k), e.addOp(emulOp{kind: emulFetch, token: t})
	a.Put(b)
	ep.CommitAM(wire.AtomicLen)
	e.atomics = e.sent
	return ucs.InProgress
}

// sync requests a reply when the owner has carried out all requests before, with their
// status. t is the flush that then continues, or 0.
func (e *emulEndpoint) sync(t uct.Token) ucs.Status {
	ep, b, st := e.request(wire.Flush, 0, wire.EmulKeyLen, 0)
	if st != ucs.OK {
		return st
	}
	binary.LittleEndian.PutUint64(b, e.addOp(emulOp{kind: emulSync, token: t}))
	ep.CommitAM(wire.EmulKeyLen)
	return ucs.InProgress
}

// takeErr returns the status of the requests that completed flushes cover, and resets it.
func (e *emulEndpoint) takeErr() ucs.Status {
	st := e.err
	e.err = ucs.OK
	return st
}

// emulKind is the kind of reply that an operation waits for.
type emulKind uint8

const (
	emulGet     emulKind = iota // data
	emulGetWord                 // eight bytes of data, the operation's value
	emulFetch                   // a value
	emulSync                    // all requests before it were carried out
)

// emulOp is an emulated operation that waits for the owner's reply.
type emulOp struct {
	gen    uint32 // 31 bits, never 0; incremented when the entry is released
	next   uint32 // in the free list
	live   bool
	kind   emulKind
	lane   uint32
	number uint64    // number of the request on its lane
	token  uct.Token // of the operation
	addr   uint64    // of a get: address of the data still to come, from which its place in the buffer follows
	left   uint64    // of a get: bytes still to come
	value  uint64
	got    int // bytes of value received
}

// emulOps holds the emulated operations of a worker that wait for a reply.
type emulOps struct {
	ops  []emulOp // entry 0 is none
	free uint32
	es   [1]uct.Event
}

// alloc stores o and returns the id that the owner uses in its reply.
func (t *emulOps) alloc(o emulOp) uint64 {
	if t.free == 0 {
		t.grow()
	}
	i := t.free
	p := &t.ops[i]
	gen := p.gen
	t.free = p.next
	*p = o
	p.gen, p.live = gen, true
	return uint64(gen)<<32 | uint64(i)
}

func (t *emulOps) grow() {
	n := max(len(t.ops), 1)
	t.ops = append(t.ops, make([]emulOp, n+emulMaxReplies-len(t.ops))...)
	for i := len(t.ops) - 1; i >= n; i-- {
		t.ops[i].gen, t.ops[i].next = request.FirstGen, t.free
		t.free = uint32(i)
	}
}

func (t *emulOps) release(i uint32) {
	o := &t.ops[i]
	*o = emulOp{gen: request.NextGen(o.gen), next: t.free}
	t.free = i
}

// emulOpByID returns the operation with this id if the sender of rx is its owner. It returns 0
// if the operation has completed. Any other id fails s.
func (wi *workerIface) emulOpByID(rx *rxConn, id uint64) uint32 {
	w := wi.t
	i, gen := uint32(id), uint32(id>>32)
	if rx.peer == 0 || i == 0 || int(i) >= len(w.emul.ops) || !request.ValidGen(gen) {
		wi.protocolError(rx)
		return 0
	}
	o := &w.emul.ops[i]
	switch {
	case o.gen != gen && (o.gen-gen)&request.GenMask <= request.GenMask/2:
		w.count.Inc(cntStale)
		return 0
	case o.gen != gen || !o.live || w.lanes[o.lane].peer != rx.peer:
		wi.protocolError(rx)
		return 0
	}
	return i
}

// handleGetReply receives the next bytes of a get.
func (wi *workerIface) handleGetReply(rx *rxConn, id uint64, data []byte) {
	i := wi.emulOpByID(rx, id)
	if i == 0 {
		return
	}
	w := wi.t
	o := &w.emul.ops[i]
	switch {
	case o.kind == emulGet && len(data) > 0 && uint64(len(data)) <= o.left:
		if k := w.slab.Find(uint64(o.token)); k != 0 && w.slab.Slots[k].State == request.StateLive { // otherwise the caller owns the buffer again
			copyWhole(w.slab.Bufs[k][o.addr-request.As[rmaOp](&w.slab.Slots[k]).addr:][:len(data)], data)
		}
		o.addr += uint64(len(data))
		if o.left -= uint64(len(data)); o.left == 0 {
			w.emulReplied(i, ucs.OK)
		}
	case o.kind == emulGetWord && len(data) > 0 && len(data) <= 8-o.got:
		var b [8]byte
		copy(b[o.got:], data)
		o.value |= binary.LittleEndian.Uint64(b[:])
		if o.got += len(data); o.got == 8 {
			w.emulReplied(i, ucs.OK)
		}
	default:
		wi.protocolError(rx)
	}
}

// handleReply receives a reply without data.
func (wi *workerIface) handleReply(rx *rxConn, id uint64, data []byte) {
	i := wi.emulOpByID(rx, id)
	if i == 0 {
		return
	}
	w := wi.t
	o := &w.emul.ops[i]
	st := ucs.RemoteAccess
	switch {
	case len(data) != wire.ReplyLen,
		wire.Uint64(data, 1) != uint64(ucs.OK) && wire.Uint64(data, 1) != uint64(ucs.RemoteAccess),
		wire.Uint64(data, 1) == uint64(ucs.OK) && o.kind < emulFetch:
		wi.protocolError(rx)
		return
	case wire.Uint64(data, 1) == uint64(ucs.OK):
		st = ucs.OK
	}
	o.value = wire.Uint64(data, 0)
	w.emulReplied(i, st)
}

// emulReplied completes operation i, whose reply has arrived, and resumes what waited for it.
func (w *thread) emulReplied(i uint32, st ucs.Status) {
	o := w.emul.ops[i]
	e := w.lanes[o.lane].emul
	e.handled = max(e.handled, o.number)
	if o.kind == emulSync {
		e.flushed = max(e.flushed, o.number)
		if e.err == ucs.OK {
			e.err = st
		}
		st = ucs.OK
		if k := w.slab.Find(uint64(o.token)); w.slab.Slots[k].Op == request.Flush {
			st = e.takeErr()
		}
	}
	w.completeEmul(i, st)
	w.tryResumeLane(o.lane)
}

// completeEmul releases operation i and completes the request that it belongs to.
func (w *thread) completeEmul(i uint32, st ucs.Status) {
	o := w.emul.ops[i]
	l := &w.lanes[o.lane]
	if o.kind != emulSync {
		l.emul.outstanding--
	}
	w.emul.release(i)
	w.emul.es[0] = uct.Event{Token: o.token, Value: o.value, Status: st}
	w.ifaces[l.iface].HandleEvents(w.emul.es[:])
}

// failEmulOps completes with st the operations that wait for replies to requests on a lane that
// has failed or closes.
func (w *thread) failEmulOps(lane uint32, st ucs.Status) {
	if w.lanes[lane].emul == nil {
		return
	}
	for i := 0; i < len(w.emul.ops); i++ { // a completed operation may begin others
		if o := &w.emul.ops[i]; o.live && o.lane == lane {
			w.completeEmul(uint32(i), st)
		}
	}
}
