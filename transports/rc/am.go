package rc

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

const (
	// maxShort is the longest payload that fits into a work request, after the header.
	maxShort = verbs.InlineLen - headerLen
	// maxHeader is the longest user header of AMZcopy.
	maxHeader = 128
	// maxAMVec is the number of scatter/gather entries that remain beside the header's.
	maxAMVec = verbs.MaxSGE - 1
)

// AMShort sends an active message inline in the work request.
//
//hot:bench BenchmarkAMShort
func (e *ep) AMShort(id uct.AMID, hdr uint64, p []byte) uct.Status {
	f := e.f
	if !f.Enter() {
		return ucs.NoResource
	}
	q := e.q
	if !q.room() || len(p) > maxShort || id >= uct.NumAMIDs {
		return e.amShortSlow(id, len(p))
	}
	w := q.nextWR()
	binary.LittleEndian.PutUint64(w.Inline[:], hdr)
	binary.LittleEndian.PutUint64(w.Inline[offID:], uint64(id))
	copy(w.Inline[headerLen:], p)
	w.Op, w.NumSG, w.InlineLen = verbs.OpSend, 0, uint8(headerLen+len(p))
	q.takePlainSlot()
	q.post(w, verbs.SendInline)
	f.Leave()
	return ucs.OK
}

// AMUint64 sends eight bytes inline in the work request.
//
//hot:bench BenchmarkAMShort
func (e *ep) AMUint64(id uct.AMID, hdr, v uint64) uct.Status {
	f := e.f
	if !f.Enter() {
		return ucs.NoResource
	}
	q := e.q
	if !q.room() || id >= uct.NumAMIDs {
		return e.amShortSlow(id, 8)
	}
	w := q.nextWR()
	binary.LittleEndian.PutUint64(w.Inline[:], hdr)
	binary.LittleEndian.PutUint64(w.Inline[offID:], uint64(id))
	binary.LittleEndian.PutUint64(w.Inline[headerLen:], v)
	w.Op, w.NumSG, w.InlineLen = verbs.OpSend, 0, headerLen+8
	q.takePlainSlot()
	q.post(w, verbs.SendInline)
	f.Leave()
	return ucs.OK
}

// amShortSlow returns the status of a short message that cannot be sent, and calls leave.
//
//go:noinline
func (e *ep) amShortSlow(id uct.AMID, n int) uct.Status {
	defer e.f.Leave()
	switch {
	case e.status != ucs.OK:
		return e.status
	case id >= uct.NumAMIDs:
		return ucs.InvalidParam
	case n > maxShort:
		return ucs.TooLong
	}
	return e.noResource(false)
}

// ReserveAM takes a bounce buffer. The queue has room for the message; no other operation uses
// it before CommitAM.
func (e *ep) ReserveAM(id uct.AMID, hdr uint64, n int) ([]byte, uct.Status) {
	f := e.f
	if !f.Enter() {
		return nil, ucs.NoResource
	}
	defer f.Leave()
	switch {
	case e.status != ucs.OK:
		return nil, e.status
	case id >= uct.NumAMIDs || n < 0:
		return nil, ucs.InvalidParam
	case n > f.attr.AM.Bcopy:
		return nil, ucs.TooLong
	case !e.q.room():
		return nil, e.noResource(true)
	}
	i, ok := f.tx.Take()
	if !ok {
		return nil, e.noResource(true)
	}
	b := f.tx.Bytes(i)
	putHeader(b, id, hdr)
	e.reserved, e.hasReserved = i, true
	f.reserved++
	return b[headerLen : headerLen+n : headerLen+n], ucs.OK
}

func putHeader(b []byte, id uct.AMID, hdr uint64) {
	binary.LittleEndian.PutUint64(b, hdr)
	binary.LittleEndian.PutUint64(b[offID:], uint64(id))
}

// CommitAM sends the message of the open reservation.
//
//hot:bench BenchmarkAMBcopy
func (e *ep) CommitAM(n int) {
	f := e.f
	f.EnterWait()
	switch {
	case !e.hasReserved:
	case e.status != ucs.OK || e.txQueue == nil:
		e.abort()
	default:
		e.hasReserved = false
		f.reserved--
		q := e.txQueue
		w := q.nextWR()
		w.Op, w.NumSG = verbs.OpSend, 1
		w.SG[0] = f.tx.SGE(e.reserved, headerLen+n)
		q.takeSlot(slotBuf, 0, e.reserved)
		q.post(w, f.signalIfScarce())
	}
	f.Leave()
}

// signalIfScarce requests a completion if more than half of the bounce buffers are in use. Unsignaled
// operations of idle connections so hold half of them at most.
func (f *iface) signalIfScarce() verbs.SendFlags {
	if 2*f.tx.Free() < f.txTotal {
		return verbs.SendSignaled
	}
	return 0
}

// Abort frees the buffer of the open reservation.
func (e *ep) Abort() {
	e.f.EnterWait()
	e.abort()
	e.f.Leave()
}

func (e *ep) abort() {
	if e.hasReserved {
		e.hasReserved = false
		e.f.reserved--
		e.f.tx.Put(e.reserved)
	}
}

// AMZcopy sends the header from a bounce buffer and the payload from the caller's memory.
//
//hot:bench BenchmarkAMZcopy
func (e *ep) AMZcopy(id uct.AMID, hdr uint64, header []byte, v []uct.Vec, t uct.Token) uct.Status {
	f := e.f
	if !f.Enter() {
		return ucs.NoResource
	}
	defer f.Leave()
	switch {
	case e.status != ucs.OK:
		return e.status
	case id >= uct.NumAMIDs || len(v) > maxAMVec:
		return ucs.InvalidParam
	case len(header) > maxHeader:
		return ucs.TooLong
	}
	q := e.q
	w := q.nextWR()
	n, st := f.fillSGEs(w.SG[1:], v, f.attr.AM.MaxZcopy)
	if st != ucs.OK {
		return st
	}
	if !q.room() {
		return e.noResource(true)
	}
	i, ok := f.tx.Take()
	if !ok {
		return e.noResource(true)
	}
	b := f.tx.Bytes(i)
	putHeader(b, id, hdr)
	w.SG[0] = f.tx.SGE(i, headerLen+copy(b[headerLen:], header))
	w.Op, w.NumSG = verbs.OpSend, uint8(1+n)
	q.takeSlot(slotBuf, t, i)
	q.post(w, verbs.SendSignaled)
	return ucs.InProgress
}

// fillSGEs fills the scatter/gather list of a work request with v, without empty pieces, and
// returns its length. TooLong: v has more than most bytes.
func (f *iface) fillSGEs(sg []verbs.SGE, v []uct.Vec, maxBytes int) (int, uct.Status) {
	n, sum := 0, 0
	for i := range v {
		k := len(v[i].Buf)
		if k == 0 {
			continue
		}
		if sum += k; sum > maxBytes {
			return 0, ucs.TooLong
		}
		if !f.d.FillSGE(&v[i], &sg[n]) {
			return 0, ucs.InvalidParam
		}
		n++
	}
	return n, ucs.OK
}
