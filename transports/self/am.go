package self

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

const (
	maxHeader = 256 // maximum length of AMZcopy's head, bytes
	maxVec    = 16  // maximum number of AMZcopy's vectors
	// payloadAlign is the alignment of payloads, bytes.
	payloadAlign = 8
)

func align(n int) int { return (n + payloadAlign - 1) &^ (payloadAlign - 1) }

// queue holds the messages of one endpoint between send and delivery.
//
//	ds:  . . [r . . . . r+n) . .      descriptors, a ring
//	mem: . . [tail . . . at) . .      payloads, a ring; each is contiguous
//
// Both restart at index 0 when the queue becomes empty. A ping-pong thus stays on the
// same cache lines.
type queue struct {
	at, end  int // payload bytes [at, end) are free
	n, limit int // messages held and their limit; limit 0: every send calls makeRoom
	r, tail  int
	ds       []uct.Desc
	mem      []byte
}

// hasRoom reports whether a descriptor and n bytes of payload are free. It reserves nothing.
//
//hot:bench BenchmarkAMShort
func (q *queue) hasRoom(n int) bool { return q.n < q.limit && n <= q.end-q.at }

// push appends a message of n bytes whose payload lies at q.at.
func (q *queue) push(id uct.AMID, hdr uint64, source uint32, n int) {
	d := &q.ds[(q.r+q.n)&(len(q.ds)-1)]
	d.Off, d.Len = uint32(q.at), uint32(n)
	d.Header, d.RxConn, d.ID = hdr, source, id
	q.n++
	q.at += align(n)
}

// fits reports whether a message of n bytes can be queued. It moves q.at to the start of
// mem if there is room only there. payloadAlign bytes before tail stay free, so that at == tail
// never means full.
func (q *queue) fits(n int) bool {
	if q.n == len(q.ds) {
		return false
	}
	if n > q.end-q.at && q.at >= q.tail && n <= q.tail-payloadAlign {
		q.at, q.end = 0, q.tail-payloadAlign
	}
	return n <= q.end-q.at
}

// pop removes the k oldest messages; the payload of the last one ends before tail.
// reserved means that a reservation lies at q.at, so the queue may not restart at 0.
func (q *queue) pop(k, tail int, reserved bool) {
	q.n -= k
	q.r = (q.r + k) & (len(q.ds) - 1)
	if q.n == 0 && !reserved {
		q.r, q.at, tail = 0, 0, 0
	}
	q.tail = tail
	if q.at < tail {
		q.end = tail - payloadAlign
	} else {
		q.end = len(q.mem)
	}
}

// AMShort: see uct.Endpoint.
func (e *endpoint) AMShort(id uct.AMID, hdr uint64, p []byte) uct.Status {
	if len(p) > e.size.seg {
		return ucs.TooLong
	}
	if !e.q.hasRoom(len(p)) {
		if st := e.makeRoom(len(p)); st != ucs.OK {
			return st
		}
	}
	copy(e.q.mem[e.q.at:], p)
	e.q.push(id, hdr, e.source, len(p))
	return ucs.OK
}

// AMUint64: see uct.Endpoint.
func (e *endpoint) AMUint64(id uct.AMID, hdr, v uint64) uct.Status {
	if !e.q.hasRoom(8) {
		if st := e.makeRoom(8); st != ucs.OK {
			return st
		}
	}
	binary.LittleEndian.PutUint64(e.q.mem[e.q.at:], v)
	e.q.push(id, hdr, e.source, 8)
	return ucs.OK
}

// AMZcopy gathers the vectors into the queue. Without this copy, the buffer would stay
// in flight until the receiver, which runs on the same goroutine, takes the message.
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
	if len(head) > maxHeader {
		return ucs.TooLong
	}
	n += len(head)
	if !e.q.hasRoom(n) {
		if st := e.makeRoom(n); st != ucs.OK {
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
	if !e.q.hasRoom(n) {
		if st := e.makeRoom(n); st != ucs.OK {
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

// makeRoom is the slow half of every send of n bytes. It returns why the send is not
// possible, or makes room for it and returns OK.
//
//go:noinline
func (e *endpoint) makeRoom(n int) uct.Status {
	if e.state != ucs.OK {
		return e.state
	}
	if e.pend.Len() > 0 && !e.dispatching {
		return ucs.NoResource
	}
	if e.q.ds == nil {
		e.q.ds, e.q.mem = make([]uct.Desc, e.size.cells), make([]byte, e.size.memory)
		e.q.end = len(e.q.mem)
	}
	if !e.q.fits(n) {
		e.refusedLen = n
		return ucs.NoResource
	}
	e.iface.signalEvent()
	e.updateFastPath()
	return ucs.OK
}

// updateFastPath updates the send state after a change of e.state, of the pending queue or of
// iface.armed. With q.limit 0 every active message calls makeRoom.
func (e *endpoint) updateFastPath() {
	st := e.state
	if st == ucs.OK && e.pend.Len() > 0 && !e.dispatching {
		st = ucs.NoResource
	}
	e.SetGate(st)
	e.q.limit = len(e.q.ds)
	if st != ucs.OK || e.iface.armed {
		e.q.limit = 0
	}
}
