package mapped

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Atomic64 updates the word at addr.
//
//hot:bench BenchmarkAtomic64Add
func (r *RMA) Atomic64(op uct.AtomicOp, v, addr uint64, k uct.RKey) uct.Status {
	rec := recordAt(k)
	if addr&7 != 0 || r.gate != ucs.OK || rec.perm&fastAtomic == 0 || addr-rec.base > rec.last8 || rec.slot.gen.Load() != rec.gen {
		return r.atomic64Slow(op, v, addr, k)
	}
	return post64(rec.word64(addr), op, v)
}

// Fetch64 updates the word at addr and returns its old value.
//
//hot:bench BenchmarkFetch64Add
func (r *RMA) Fetch64(op uct.AtomicOp, v, cmp, addr uint64, k uct.RKey, _ uct.Token) (uint64, uct.Status) {
	rec := recordAt(k)
	if addr&7 != 0 || r.gate != ucs.OK || rec.perm&fastAtomic == 0 || addr-rec.base > rec.last8 || rec.slot.gen.Load() != rec.gen {
		return r.fetch64Slow(op, v, cmp, addr, k)
	}
	return op.Fetch64(rec.word64(addr), v, cmp)
}

// Atomic32 updates the word at addr.
func (r *RMA) Atomic32(op uct.AtomicOp, v uint32, addr uint64, k uct.RKey) uct.Status {
	rec, st := r.enterAtomic(addr, 4, k)
	if st != ucs.OK {
		return st
	}
	st = post32(rec.word32(addr), op, v)
	rec.leaveAtomic()
	return st
}

// Fetch32 updates the word at addr and returns its old value.
func (r *RMA) Fetch32(op uct.AtomicOp, v, cmp uint32, addr uint64, k uct.RKey, _ uct.Token) (uint32, uct.Status) {
	rec, st := r.enterAtomic(addr, 4, k)
	if st != ucs.OK {
		return 0, st
	}
	old, st := op.Fetch32(rec.word32(addr), v, cmp)
	rec.leaveAtomic()
	return old, st
}

//go:noinline
func (r *RMA) atomic64Slow(op uct.AtomicOp, v, addr uint64, k uct.RKey) uct.Status {
	rec, st := r.enterAtomic(addr, 8, k)
	if st != ucs.OK {
		return st
	}
	st = post64(rec.word64(addr), op, v)
	rec.leaveAtomic()
	return st
}

//go:noinline
func (r *RMA) fetch64Slow(op uct.AtomicOp, v, cmp, addr uint64, k uct.RKey) (uint64, uct.Status) {
	rec, st := r.enterAtomic(addr, 8, k)
	if st != ucs.OK {
		return 0, st
	}
	old, st := op.Fetch64(rec.word64(addr), v, cmp)
	rec.leaveAtomic()
	return old, st
}

// enterAtomic checks an atomic access to a word of n bytes, and counts it if the memory is
// counted. If it returns OK, the caller must call leaveAtomic.
func (r *RMA) enterAtomic(addr, n uint64, k uct.RKey) (*record, uct.Status) {
	rec := recordAt(k)
	if r.gate != ucs.OK {
		return rec, r.gate
	}
	if addr&(n-1) != 0 {
		return rec, ucs.InvalidParam
	}
	if st := rec.check(addr, n, permAtomic); st != ucs.OK {
		return rec, st
	}
	if rec.perm&isCopied != 0 {
		return rec, ucs.Unsupported
	}
	if rec.perm&isCounted != 0 && !rec.slot.Enter(rec.gen) {
		return rec, ucs.RemoteAccess
	}
	return rec, ucs.OK
}

func (rec *record) leaveAtomic() {
	if rec.perm&isCounted != 0 {
		rec.slot.Leave()
	}
}

// rejectAtomic returns the status of an atomic that cannot be posted without a result.
func rejectAtomic(op uct.AtomicOp) uct.Status {
	if op < uct.NumAtomicOps {
		return ucs.Unsupported
	}
	return ucs.InvalidParam
}

func post64(p *uint64, op uct.AtomicOp, v uint64) uct.Status {
	switch op {
	case uct.AtomicAdd:
		atomic.AddUint64(p, v)
	case uct.AtomicAnd:
		atomic.AndUint64(p, v)
	case uct.AtomicOr:
		atomic.OrUint64(p, v)
	case uct.AtomicXor:
		for old := atomic.LoadUint64(p); !atomic.CompareAndSwapUint64(p, old, old^v); {
			old = atomic.LoadUint64(p)
		}
	default: // swap and compare-and-swap need a result
		return rejectAtomic(op)
	}
	return ucs.OK
}

func post32(p *uint32, op uct.AtomicOp, v uint32) uct.Status {
	switch op {
	case uct.AtomicAdd:
		atomic.AddUint32(p, v)
	case uct.AtomicAnd:
		atomic.AndUint32(p, v)
	case uct.AtomicOr:
		atomic.OrUint32(p, v)
	case uct.AtomicXor:
		for old := atomic.LoadUint32(p); !atomic.CompareAndSwapUint32(p, old, old^v); {
			old = atomic.LoadUint32(p)
		}
	default:
		return rejectAtomic(op)
	}
	return ucs.OK
}
