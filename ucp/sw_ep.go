package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// swEndpoint emulates puts, gets and atomics by active messages on a lane whose transport
// lacks them. The owner's worker carries them out in its Progress, in the order in which
// they arrive. swEndpoint implements only this part of uct.Endpoint. The key is an swKey.
//
// A put, or an atomic without a result, completes when its message is sent. Whether it
// succeeded is returned by the lane's flush.
//
// Source: UCX's sw_rma and sw_amo.
type swEndpoint struct {
	uct.Endpoint // nil: the other methods are not called
	w            *Worker
	lane         uint32
	limit        int  // longest put or get in one message
	mixed        bool // the lane's transport has RMA or AMO operations too

	// Requests are numbered from 1 in the order in which they are sent.
	sent    uint64
	handled uint64 // the owner has carried out all requests up to this one
	posted  uint64 // the last request without a reply
	atomics uint64 // the last atomic
	synced  uint64 // the last request that a completed flush covers
	until   uint64 // the lane is stalled until this request is carried out
	waits   int    // replies that are outstanding, without those to flushes
	fence   uint32 // the lane is stalled until this fence over several lanes completes; 0: none
	err     ucs.Status
	halt    *stalledEndpoint // allocated when first needed
}

const (
	swKeyLen    = 8  // before the data of a put
	swGetLen    = 24 // key, id, bytes wanted
	swAtomicLen = 34 // key, id, operand, compare value, operation, width
	swDoneLen   = 16 // value, status

	// swMaxPiece is the longest put or get of one message.
	swMaxPiece = 64 << 10
	// swMaxWaits is the number of outstanding replies of a lane. An owner that gets
	// NoResource keeps copies of at most so many pieces.
	swMaxWaits = 32
)

// swLimit returns the longest put or get over a lane whose messages hold bcopy bytes.
func swLimit(bcopy int) int { return min(bcopy-swKeyLen, swMaxPiece) }

// swLane returns the emulation endpoint of lane i, and creates it if needed.
func (w *Worker) swLane(i uint32) *swEndpoint {
	l := &w.t.lanes[i]
	if l.sw == nil {
		l.sw = &swEndpoint{w: w, lane: i}
		l.sw.suit(w.ports[l.port], l)
	}
	return l.sw
}

// suit adapts e to its lane's transport, of port p.
func (e *swEndpoint) suit(p *port, l *lane) {
	e.limit = swLimit(l.bcopy)
	e.mixed = p.iface.Attr().Ops&(uct.OpsPut|uct.OpsGet|uct.OpAtomics) != 0
}

// request reserves a message of n bytes and writes the key. The caller fills in the
// rest and commits.
func (e *swEndpoint) request(id uct.AMID, addr uint64, n int, key uct.RKey) (uct.Endpoint, []byte, ucs.Status) {
	ep := e.w.t.lanes[e.lane].ep
	b, st := ep.ReserveAM(id, addr, n)
	if st != ucs.OK {
		return nil, nil, st
	}
	binary.LittleEndian.PutUint64(b, uint64(key))
	return ep, b, ucs.OK
}

// PutShort sends p in a message.
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

// PutUint64 puts eight bytes, which the owner stores atomically if they are aligned.
func (e *swEndpoint) PutUint64(v, addr uint64, k uct.RKey) uct.Status {
	ep, b, st := e.request(amPut, addr, swKeyLen+8, k)
	if st != ucs.OK {
		return st
	}
	binary.LittleEndian.PutUint64(b[swKeyLen:], v)
	e.commit(ep, swKeyLen+8)
	return ucs.OK
}

// commit sends a request without a reply.
func (e *swEndpoint) commit(ep uct.Endpoint, n int) {
	ep.CommitAM(n)
	e.sent++
	e.posted = e.sent
}

// GetBcopy requests len(p) bytes.
func (e *swEndpoint) GetBcopy(p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	return e.get(swOp{kind: swGet, token: t, addr: addr, left: uint64(len(p))}, len(p), addr, k)
}

// GetUint64 requests eight bytes, which the owner loads atomically if they are aligned.
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

// ask is request for a request with a reply. With swMaxWaits replies outstanding it stalls
// the lane until one arrives.
func (e *swEndpoint) ask(id uct.AMID, addr uint64, n int, k uct.RKey) (uct.Endpoint, []byte, ucs.Status) {
	ep, b, st := e.request(id, addr, n, k)
	if st == ucs.OK && e.waits >= swMaxWaits {
		ep.Abort()
		e.w.stallLane(e.lane)
		return nil, nil, ucs.NoResource
	}
	return ep, b, st
}

// awaits records operation o, whose request is sent next, and returns its id.
func (e *swEndpoint) awaits(o swOp) uint64 {
	e.sent++
	if o.kind != swSync {
		e.waits++
	}
	o.lane, o.number = e.lane, e.sent
	return e.w.sw.take(o)
}

// Atomic32 posts a 32-bit atomic.
func (e *swEndpoint) Atomic32(op uct.AtomicOp, v uint32, addr uint64, k uct.RKey) uct.Status {
	return e.atomic(op, 4, uint64(v), addr, k)
}

// Atomic64 posts a 64-bit atomic.
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

// Fetch32 requests a 32-bit atomic and the previous value.
func (e *swEndpoint) Fetch32(op uct.AtomicOp, v, cmp uint32, addr uint64, k uct.RKey, t uct.Token) (uint32, uct.Status) {
	return 0, e.fetch(op, 4, uint64(v), uint64(cmp), addr, k, t)
}

// Fetch64 requests a 64-bit atomic and the previous value.
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

// putAtomic writes what follows the key.
func putAtomic(b []byte, id uint64, op uct.AtomicOp, width uint8, v, cmp uint64) {
	binary.LittleEndian.PutUint64(b[8:], id)
	binary.LittleEndian.PutUint64(b[16:], v)
	binary.LittleEndian.PutUint64(b[24:], cmp)
	b[32], b[33] = byte(op), width
}

// unheard reports whether requests were sent that no completed flush covers.
func (e *swEndpoint) unheard() bool { return e.posted > e.synced || e.handled < e.sent }

// sync requests a reply when the owner has carried out all requests before, with their
// status. t is the flush that then continues, or 0.
func (e *swEndpoint) sync(t uct.Token) ucs.Status {
	ep, b, st := e.request(amFlush, 0, swKeyLen, 0)
	if st != ucs.OK {
		return st
	}
	binary.LittleEndian.PutUint64(b, e.awaits(swOp{kind: swSync, token: t}))
	ep.CommitAM(swKeyLen)
	return ucs.InProgress
}

// takeErr returns the status of the requests that completed flushes cover, and resets it.
func (e *swEndpoint) takeErr() ucs.Status {
	st := e.err
	e.err = ucs.OK
	return st
}
