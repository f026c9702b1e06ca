package rc

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// PutShort writes p, inline in the work request.
//
//hot:bench BenchmarkPutShort
func (e *ep) PutShort(p []byte, addr uint64, k uct.RKey) uct.Status {
	f := e.f
	if !f.Enter() {
		return ucs.NoResource
	}
	q := e.q
	if !q.room() || len(p) > verbs.InlineLen {
		return e.putSlow(len(p))
	}
	key := f.d.Key(k)
	if st := key.Allows(addr, len(p), uct.MemRemotePut); st != ucs.OK {
		f.Leave()
		return st
	}
	w := q.nextWR()
	copy(w.Inline[:], p)
	w.Op, w.NumSG, w.InlineLen, w.Remote, w.RKey = verbs.OpWrite, 0, uint8(len(p)), addr, key.RKey
	q.takePlainSlot()
	q.post(w, verbs.SendInline)
	f.Leave()
	return ucs.OK
}

// PutUint64 writes eight bytes, inline in the work request.
//
//hot:bench BenchmarkPutShort
func (e *ep) PutUint64(v, addr uint64, k uct.RKey) uct.Status {
	f := e.f
	if !f.Enter() {
		return ucs.NoResource
	}
	q := e.q
	if !q.room() {
		return e.putSlow(8)
	}
	key := f.d.Key(k)
	if st := key.Allows(addr, 8, uct.MemRemotePut); st != ucs.OK {
		f.Leave()
		return st
	}
	w := q.nextWR()
	binary.LittleEndian.PutUint64(w.Inline[:], v)
	w.Op, w.NumSG, w.InlineLen, w.Remote, w.RKey = verbs.OpWrite, 0, 8, addr, key.RKey
	q.takePlainSlot()
	q.post(w, verbs.SendInline)
	f.Leave()
	return ucs.OK
}

// putSlow returns the status of a short write that cannot be posted, and calls leave.
//
//go:noinline
func (e *ep) putSlow(n int) uct.Status {
	defer e.f.Leave()
	switch {
	case e.status != ucs.OK:
		return e.status
	case n > verbs.InlineLen:
		return ucs.TooLong
	}
	return e.noResource(false)
}

// takeBuf checks the arguments of a put, get or atomic of n bytes, and takes a bounce buffer
// for it.
func (e *ep) takeBuf(n int, addr uint64, k uct.RKey, need uct.MemFlags) (buf, rkey uint32, st uct.Status) {
	f := e.f
	if e.status != ucs.OK {
		return 0, 0, e.status
	}
	if n > f.seg {
		return 0, 0, ucs.TooLong
	}
	key := f.d.Key(k)
	if st := key.Allows(addr, n, need); st != ucs.OK {
		return 0, 0, st
	}
	if !e.q.room() {
		return 0, 0, e.noResource(true)
	}
	buf, ok := f.tx.Take()
	if !ok {
		return 0, 0, e.noResource(true)
	}
	return buf, key.RKey, ucs.OK
}

// PutBcopy writes p from a bounce buffer.
func (e *ep) PutBcopy(p []byte, addr uint64, k uct.RKey, _ uct.Token) uct.Status {
	if !e.f.Enter() {
		return ucs.NoResource
	}
	defer e.f.Leave()
	i, rkey, st := e.takeBuf(len(p), addr, k, uct.MemRemotePut)
	if st != ucs.OK {
		return st
	}
	copy(e.f.tx.Bytes(i), p)
	q := e.q
	w := q.nextWR()
	w.Op, w.NumSG, w.Remote, w.RKey = verbs.OpWrite, 1, addr, rkey
	w.SG[0] = e.f.tx.SGE(i, len(p))
	q.takeSlot(slotBuf, 0, i)
	q.post(w, e.f.signalIfScarce())
	return ucs.OK
}

// GetBcopy reads into a bounce buffer, which is copied to p on completion.
func (e *ep) GetBcopy(p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	if !e.f.Enter() {
		return ucs.NoResource
	}
	defer e.f.Leave()
	i, rkey, st := e.takeBuf(len(p), addr, k, uct.MemRemoteGet)
	if st != ucs.OK {
		return st
	}
	q := e.q
	w := q.nextWR()
	w.Op, w.NumSG, w.Remote, w.RKey = verbs.OpRead, 1, addr, rkey
	w.SG[0] = e.f.tx.SGE(i, len(p))
	q.takeSlot(slotGet, t, i).n = uint32(len(p))
	if q.dest == nil {
		q.dest = make([][]byte, len(q.slots))
	}
	q.dest[q.tail&q.mask] = p
	q.post(w, verbs.SendSignaled)
	return ucs.InProgress
}

// PutZcopy writes from the caller's memory.
//
//hot:bench BenchmarkPutZcopy
func (e *ep) PutZcopy(v []uct.Vec, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	return e.zcopy(verbs.OpWrite, v, addr, k, t)
}

// GetZcopy reads into the caller's memory.
func (e *ep) GetZcopy(v []uct.Vec, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	return e.zcopy(verbs.OpRead, v, addr, k, t)
}

func (e *ep) zcopy(op verbs.Opcode, v []uct.Vec, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	f := e.f
	if !f.Enter() {
		return ucs.NoResource
	}
	defer f.Leave()
	switch {
	case e.status != ucs.OK:
		return e.status
	case len(v) > verbs.MaxSGE:
		return ucs.InvalidParam
	}
	q := e.q
	w := q.nextWR()
	n, st := f.fillSGEs(w.SG[:], v, f.attr.Put.MaxZcopy)
	if st != ucs.OK {
		return st
	}
	sum := 0
	for i := range n {
		sum += int(w.SG[i].Len)
	}
	need, kind := uct.MemRemotePut, slotToken
	if op == verbs.OpRead {
		need, kind = uct.MemRemoteGet, slotRead
	}
	key := f.d.Key(k)
	if st := key.Allows(addr, sum, need); st != ucs.OK {
		return st
	}
	if !q.room() {
		return e.noResource(false)
	}
	w.Op, w.NumSG, w.InlineLen, w.Remote, w.RKey = op, uint8(n), 0, addr, key.RKey
	q.takeSlot(kind, t, 0)
	q.post(w, verbs.SendSignaled)
	return ucs.InProgress
}

// GetShort is unsupported: a read completes after the call.
func (e *ep) GetShort([]byte, uint64, uct.RKey) uct.Status { return e.unsupported() }

// GetUint64 is unsupported, as GetShort is.
func (e *ep) GetUint64(uint64, uct.RKey, uct.Token) (uint64, uct.Status) { return 0, e.unsupported() }

// Atomic32 is unsupported: QPs have only 64-bit atomics.
func (e *ep) Atomic32(uct.AtomicOp, uint32, uint64, uct.RKey) uct.Status { return e.unsupported() }

// Fetch32 is unsupported, as Atomic32 is.
func (e *ep) Fetch32(uct.AtomicOp, uint32, uint32, uint64, uct.RKey, uct.Token) (uint32, uct.Status) {
	return 0, e.unsupported()
}

func (e *ep) unsupported() uct.Status {
	e.f.EnterWait()
	defer e.f.Leave()
	if e.status != ucs.OK {
		return e.status
	}
	return ucs.Unsupported
}

// Atomic64 adds to a word. The QP returns the old value nevertheless; it is discarded.
func (e *ep) Atomic64(op uct.AtomicOp, v, addr uint64, k uct.RKey) uct.Status {
	if !postAtomics.Has(op) {
		return e.unsupported()
	}
	_, st := e.Fetch64(op, v, 0, addr, k, 0)
	if st == ucs.InProgress {
		return ucs.OK
	}
	return st
}

// Fetch64 adds to a word, or compares and swaps it.
func (e *ep) Fetch64(op uct.AtomicOp, v, cmp, addr uint64, k uct.RKey, t uct.Token) (uint64, uct.Status) {
	if !fetchAtomics.Has(op) {
		return 0, e.unsupported()
	}
	if !e.f.Enter() {
		return 0, ucs.NoResource
	}
	defer e.f.Leave()
	if addr%8 != 0 && e.status == ucs.OK {
		return 0, ucs.InvalidParam
	}
	i, rkey, st := e.takeBuf(8, addr, k, uct.MemRemoteAtomic)
	if st != ucs.OK {
		return 0, st
	}
	q := e.q
	w := q.nextWR()
	w.Op, w.NumSG, w.InlineLen, w.Remote, w.RKey = verbs.OpFetchAdd, 1, 0, addr, rkey
	w.Swap = v
	if op == uct.AtomicCompareSwap {
		w.Op, w.Compare = verbs.OpCompareSwap, cmp
	}
	w.SG[0] = e.f.tx.SGE(i, 8)
	flags := e.f.signalIfScarce()
	if t != 0 {
		flags = verbs.SendSignaled
	}
	q.takeSlot(slotFetch, t, i)
	q.post(w, flags)
	return 0, ucs.InProgress
}
