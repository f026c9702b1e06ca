package self

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

const (
	maxHead = 256 // longest head of AMZcopy, bytes
	maxVec  = 16  // most pieces of AMZcopy
	// grain is what payloads are aligned to, bytes.
	grain = 8
)

func align(n int) int { return (n + grain - 1) &^ (grain - 1) }

// queue holds the messages of one endpoint from their send to their delivery.
//
//	ds:  . . [r . . . . r+n) . .      descriptors, a ring
//	mem: . . [tail . . . at) . .      payloads, a ring; each lies in one piece
//
// Both start again at their beginning when the queue runs empty, so that a
// ping-pong stays on the same cache lines.
type queue struct {
	at, end int // payload bytes [at, end) may be taken
	n, max  int // messages held, and how many may be; max 0: ask refill
	r, tail int
	ds      []uct.Desc
	mem     []byte
}

// claim finds n bytes of payload and a descriptor. Nothing is taken before push.
// hot: BenchmarkAMShort
func (q *queue) claim(n int) bool { return q.n < q.max && n <= q.end-q.at }

// push enters a message of n bytes that lies at q.at.
func (q *queue) push(id uct.AMID, hdr uint64, source uint32, n int) {
	d := q.slot()
	d.Off, d.Len = uint32(q.at), uint32(n)
	d.Header, d.Source, d.ID = hdr, source, id
	q.n++
	q.at += align(n)
}

func (q *queue) slot() *uct.Desc { return &q.ds[(q.r+q.n)&(len(q.ds)-1)] }

// fits tells whether a message of n bytes may be taken, moving to the beginning
// of mem where only that has room. One grain before tail stays free, so that at
// == tail never means full.
func (q *queue) fits(n int) bool {
	if q.n == len(q.ds) {
		return false
	}
	if n > q.end-q.at && q.at >= q.tail && n <= q.tail-grain {
		q.at, q.end = 0, q.tail-grain
	}
	return n <= q.end-q.at
}

// pop removes the k oldest messages, whose payload ended before tail. restart
// forbidden: a reservation lies at q.at.
func (q *queue) pop(k, tail int, reserved bool) {
	q.n -= k
	q.r = (q.r + k) & (len(q.ds) - 1)
	if q.n == 0 && !reserved {
		q.r, q.at, tail = 0, 0, 0
	}
	q.tail = tail
	if q.at < tail {
		q.end = tail - grain
	} else {
		q.end = len(q.mem)
	}
}

// AMShort: see uct.Endpoint.
func (e *endpoint) AMShort(id uct.AMID, hdr uint64, p []byte) uct.Status {
	if len(p) > e.size.seg {
		return ucs.TooLong
	}
	if !e.q.claim(len(p)) {
		if st := e.refill(len(p)); st != ucs.OK {
			return st
		}
	}
	copy(e.q.mem[e.q.at:], p)
	e.q.push(id, hdr, e.source, len(p))
	return ucs.OK
}

// AMUint64: see uct.Endpoint.
func (e *endpoint) AMUint64(id uct.AMID, hdr, v uint64) uct.Status {
	if !e.q.claim(8) {
		if st := e.refill(8); st != ucs.OK {
			return st
		}
	}
	binary.LittleEndian.PutUint64(e.q.mem[e.q.at:], v)
	e.q.push(id, hdr, e.source, 8)
	return ucs.OK
}

// AMZcopy gathers the pieces into the queue: with the receiver on the same
// goroutine there is no copy to save that would not keep the buffer in flight.
func (e *endpoint) AMZcopy(id uct.AMID, hdr uint64, head []byte, v []uct.Vec, _ uct.Token) uct.Status {
	if len(v) > maxVec {
		return ucs.InvalidParam
	}
	n := 0
	for i := range v {
		if len(v[i].Buf) > e.size.seg-n {
			return ucs.TooLong
		}
		n += len(v[i].Buf)
	}
	if len(head) > maxHead {
		return ucs.TooLong
	}
	n += len(head)
	if !e.q.claim(n) {
		if st := e.refill(n); st != ucs.OK {
			return st
		}
	}
	at := e.q.at + copy(e.q.mem[e.q.at:], head)
	for i := range v {
		at += copy(e.q.mem[at:], v[i].Buf)
	}
	e.q.push(id, hdr, e.source, n)
	return ucs.OK
}

// ReserveAM: see uct.Endpoint.
func (e *endpoint) ReserveAM(id uct.AMID, hdr uint64, n int) ([]byte, uct.Status) {
	if n < 0 {
		return nil, ucs.InvalidParam
	}
	if n > e.size.seg {
		return nil, ucs.TooLong
	}
	if !e.q.claim(n) {
		if st := e.refill(n); st != ucs.OK {
			return nil, st
		}
	}
	e.reserved, e.reservedID, e.reservedHeader = n, id, hdr
	return e.q.mem[e.q.at : e.q.at+n : e.q.at+n], ucs.OK
}

// CommitAM: see uct.Endpoint.
func (e *endpoint) CommitAM(n int) {
	if e.reserved < 0 || e.state != ucs.OK {
		e.reserved = none
		return
	}
	if n < 0 || n > e.reserved {
		panic("self: CommitAM beyond the reservation")
	}
	e.reserved = none
	e.q.push(e.reservedID, e.reservedHeader, e.source, n)
}

// Abort: see uct.Endpoint.
func (e *endpoint) Abort() { e.reserved = none }

// refill is the slow half of every send of n bytes: it says why not, or makes
// the claim good.
//
//go:noinline
func (e *endpoint) refill(n int) uct.Status {
	if e.state != ucs.OK {
		return e.state
	}
	if e.pend.Len() > 0 && !e.offering {
		return ucs.NoResource
	}
	if e.q.ds == nil {
		e.q.ds, e.q.mem = make([]uct.Desc, e.size.cells), make([]byte, e.size.memory)
		e.q.end = len(e.q.mem)
	}
	if !e.q.fits(n) {
		e.refused = n
		return ucs.NoResource
	}
	e.iface.wake()
	e.gate()
	return ucs.OK
}

// gate says after a change of state whether operations may go on. Messages are
// stopped by q.max 0, which sends each of them through refill.
func (e *endpoint) gate() {
	st := e.state
	if st == ucs.OK && e.pend.Len() > 0 && !e.offering {
		st = ucs.NoResource
	}
	e.SetGate(st)
	e.q.max = len(e.q.ds)
	if st != ucs.OK || e.iface.armed {
		e.q.max = 0
	}
}
