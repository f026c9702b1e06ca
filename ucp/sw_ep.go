package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// swEndpoint carries out puts, gets and atomics by active messages of a lane,
// where the lane's transport does not. The owner's worker does them in its
// Progress, in the order in which the lane brings them. Of uct.Endpoint it has
// just that part; the key is an swKey.
//
// Puts, and atomics without a result, are done as far as the caller goes when
// their message is sent; what became of them is told by the lane's flush.
//
// Source: UCX's sw_rma and sw_amo.
type swEndpoint struct {
	uct.Endpoint // nil: the rest is not called
	w            *Worker
	lane         uint32
	limit        int  // longest put or get by one message
	mixed        bool // the lane's transport has one-sided operations too

	// Requests are numbered from 1 in the order of sending.
	sent    uint64
	handled uint64 // up to here they were carried out
	posted  uint64 // the last without an answer
	atomics uint64 // the last atomic
	synced  uint64 // what a flush has heard of
	until   uint64 // the lane is halted until so many are handled
	waits   int    // answers under way, but to flushes
	fence   uint32 // the lane is halted until this fence, of several lanes, ends; 0: none
	err     ucs.Status
	halt    *haltedEndpoint // made at the first need
}

const (
	swKeyLen    = 8  // before the data of a put
	swGetLen    = 24 // key, id, bytes wanted
	swAtomicLen = 34 // key, id, operand, what to compare with, operation, width
	swDoneLen   = 16 // value, status

	// swMaxPiece is the longest put or get that one message asks for.
	swMaxPiece = 64 << 10
	// swMaxWaits answers of a lane are under way at most: so many pieces at
	// worst are kept by an owner who cannot send them on.
	swMaxWaits = 32
)

// swLimit is the longest put or get over a lane whose messages hold bcopy bytes.
func swLimit(bcopy int) int { return min(bcopy-swKeyLen, swMaxPiece) }

// swLane gives lane i's endpoint for software operations.
func (w *Worker) swLane(i uint32) *swEndpoint {
	l := &w.t.lanes[i]
	if l.sw == nil {
		l.sw = &swEndpoint{w: w, lane: i}
		l.sw.suit(w.ports[l.port], l)
	}
	return l.sw
}

// suit fits e to its lane's transport, of port p.
func (e *swEndpoint) suit(p *port, l *lane) {
	e.limit = swLimit(l.bcopy)
	e.mixed = p.iface.Attr().Ops&(uct.OpsPut|uct.OpsGet|uct.OpAtomics) != 0
}

// request reserves a message with n bytes, which the caller fills and commits.
func (e *swEndpoint) request(id uct.AMID, addr uint64, n int, key uct.RKey) (uct.Endpoint, []byte, ucs.Status) {
	ep := e.w.t.lanes[e.lane].ep
	b, st := ep.ReserveAM(id, addr, n)
	if st != ucs.OK {
		return nil, nil, st
	}
	binary.LittleEndian.PutUint64(b, uint64(key))
	return ep, b, ucs.OK
}

// PutShort copies p into a message.
func (e *swEndpoint) PutShort(p []byte, addr uint64, k uct.RKey) uct.Status {
	ep, b, st := e.request(amPut, addr, swKeyLen+len(p), k)
	if st != ucs.OK {
		return st
	}
	copy(b[swKeyLen:], p)
	e.commit(ep, swKeyLen+len(p))
	return ucs.OK
}

// PutBcopy is PutShort.
func (e *swEndpoint) PutBcopy(p []byte, addr uint64, k uct.RKey, _ uct.Token) uct.Status {
	return e.PutShort(p, addr, k)
}

// PutUint64 is a put of eight bytes, which the owner stores whole.
func (e *swEndpoint) PutUint64(v, addr uint64, k uct.RKey) uct.Status {
	ep, b, st := e.request(amPut, addr, swKeyLen+8, k)
	if st != ucs.OK {
		return st
	}
	binary.LittleEndian.PutUint64(b[swKeyLen:], v)
	e.commit(ep, swKeyLen+8)
	return ucs.OK
}

// commit sends a request without an answer.
func (e *swEndpoint) commit(ep uct.Endpoint, n int) {
	ep.CommitAM(n)
	e.sent++
	e.posted = e.sent
}

// GetBcopy asks for len(p) bytes.
func (e *swEndpoint) GetBcopy(p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	return e.get(swOp{kind: swGet, token: t, addr: addr, left: uint64(len(p))}, len(p), addr, k)
}

// GetUint64 asks for eight bytes, which the owner loads whole.
func (e *swEndpoint) GetUint64(addr uint64, k uct.RKey, t uct.Token) (uint64, uct.Status) {
	return 0, e.get(swOp{kind: swGetWord, token: t}, 8, addr, k)
}

func (e *swEndpoint) get(o swOp, n int, addr uint64, k uct.RKey) uct.Status {
	ep, b, st := e.ask(amGet, addr, swGetLen, k)
	if st != ucs.OK {
		return st
	}
	binary.LittleEndian.PutUint64(b[8:], e.awaits(o))
	binary.LittleEndian.PutUint64(b[16:], uint64(n))
	ep.CommitAM(swGetLen)
	return ucs.InProgress
}

// ask is request of what is answered. Above swMaxWaits the lane is halted until
// an answer comes.
func (e *swEndpoint) ask(id uct.AMID, addr uint64, n int, k uct.RKey) (uct.Endpoint, []byte, ucs.Status) {
	ep, b, st := e.request(id, addr, n, k)
	if st == ucs.OK && e.waits >= swMaxWaits {
		ep.Abort()
		e.w.haltLane(e.lane)
		return nil, nil, ucs.NoResource
	}
	return ep, b, st
}

// awaits notes the operation o, whose request is sent next, and gives its id.
func (e *swEndpoint) awaits(o swOp) uint64 {
	e.sent++
	if o.kind != swSync {
		e.waits++
	}
	o.lane, o.number = e.lane, e.sent
	return e.w.sw.take(o)
}

// Atomic32 posts an atomic of 32 bits.
func (e *swEndpoint) Atomic32(op uct.AtomicOp, v uint32, addr uint64, k uct.RKey) uct.Status {
	return e.atomic(op, 4, uint64(v), addr, k)
}

// Atomic64 posts an atomic of 64 bits.
func (e *swEndpoint) Atomic64(op uct.AtomicOp, v, addr uint64, k uct.RKey) uct.Status {
	return e.atomic(op, 8, v, addr, k)
}

func (e *swEndpoint) atomic(op uct.AtomicOp, width uint8, v, addr uint64, k uct.RKey) uct.Status {
	ep, b, st := e.request(amAtomic, addr, swAtomicLen, k)
	if st != ucs.OK {
		return st
	}
	putAtomic(b, 0, op, width, v, 0)
	e.commit(ep, swAtomicLen)
	e.atomics = e.sent
	return ucs.OK
}

// Fetch32 asks for an atomic of 32 bits and the value before.
func (e *swEndpoint) Fetch32(op uct.AtomicOp, v, cmp uint32, addr uint64, k uct.RKey, t uct.Token) (uint32, uct.Status) {
	return 0, e.fetch(op, 4, uint64(v), uint64(cmp), addr, k, t)
}

// Fetch64 asks for an atomic of 64 bits and the value before.
func (e *swEndpoint) Fetch64(op uct.AtomicOp, v, cmp, addr uint64, k uct.RKey, t uct.Token) (uint64, uct.Status) {
	return 0, e.fetch(op, 8, v, cmp, addr, k, t)
}

func (e *swEndpoint) fetch(op uct.AtomicOp, width uint8, v, cmp, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	ep, b, st := e.ask(amAtomic, addr, swAtomicLen, k)
	if st != ucs.OK {
		return st
	}
	putAtomic(b, e.awaits(swOp{kind: swFetch, token: t}), op, width, v, cmp)
	ep.CommitAM(swAtomicLen)
	e.atomics = e.sent
	return ucs.InProgress
}

// putAtomic fills in what follows the key.
func putAtomic(b []byte, id uint64, op uct.AtomicOp, width uint8, v, cmp uint64) {
	binary.LittleEndian.PutUint64(b[8:], id)
	binary.LittleEndian.PutUint64(b[16:], v)
	binary.LittleEndian.PutUint64(b[24:], cmp)
	b[32], b[33] = byte(op), width
}

// unheard reports whether requests were sent of which no flush has heard.
func (e *swEndpoint) unheard() bool { return e.posted > e.synced || e.handled < e.sent }

// sync asks the owner to answer when it has done what was sent before, and what
// became of it. t is a flush that goes on then, or 0.
func (e *swEndpoint) sync(t uct.Token) ucs.Status {
	ep, b, st := e.request(amFlush, 0, swKeyLen, 0)
	if st != ucs.OK {
		return st
	}
	binary.LittleEndian.PutUint64(b, e.awaits(swOp{kind: swSync, token: t}))
	ep.CommitAM(swKeyLen)
	return ucs.InProgress
}

// takeErr gives what became of the requests that a flush has heard of, once.
func (e *swEndpoint) takeErr() ucs.Status {
	st := e.err
	e.err = ucs.OK
	return st
}
