package mapped

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// maxCopyBytes bounds one copy. Above 1 MB Go's copy uses non-temporal stores, which evict data
// from the cache that the peer will read. Longer mapped memory is copied in pieces of turnBytes.
const (
	maxCopyBytes = 512 << 10
	turnBytes    = 32 << 10
)

// RMA implements the put, get and atomic methods of uct.Endpoint with the keys of one domain.
// Embed it and call Init. No operation returns InProgress or uses its token.
//
// Concurrency: as for the endpoint, one goroutine at a time.
type RMA struct {
	keys *Keys
	gate uct.Status
	// backward: the last transfer in pieces of turnBytes began at its end.
	backward bool
	word     atomic.Uint32
}

// Init sets the domain's keys. It must be called before any operation.
func (r *RMA) Init(k *Keys) { r.keys = k }

// SetGate sets the status that all operations return before any other check. OK enables the
// operations. NoResource is used while tokens are pending, PeerFailed and Closed at the end.
func (r *RMA) SetGate(s uct.Status) { r.gate = s }

// Barrier orders all accesses before it before all accesses after it. Fence and flush call it.
//
// On every CPU a release store is ordered before a later acquire load, and with them the
// accesses around them (arm64: STLR, LDAR; amd64: the store is an XCHG). An atomic add would
// not order them on an arm64 without LSE.
func (r *RMA) Barrier() {
	r.word.Store(1)
	r.word.Load()
}

// check reports whether n bytes at addr may be accessed. Its load of the generation pairs with
// the owner's store in Slot.revoke. The eight-byte paths repeat these checks in their own code:
// as an inlined function they cost six instructions more.
func (rec *record) check(addr, n uint64, perm uint32) uct.Status {
	if off := addr - rec.base; n > rec.size || off > rec.size-n {
		return ucs.InvalidParam
	}
	if rec.perm&perm == 0 || rec.slot.gen.Load() != rec.gen {
		return ucs.RemoteAccess
	}
	return ucs.OK
}

// TryPutUint64 implements uct.WordPutter. It calls no function, so it needs no stack frame.
//
//hot:bench BenchmarkPutUint64
//go:nosplit
func (r *RMA) TryPutUint64(v, addr uint64, k uct.RKey) bool {
	rec := recordAt(k)
	if r.gate != ucs.OK || addr-rec.base >= rec.put8 || rec.gen != rec.slot.gen.Load() {
		return false
	}
	rec.store8(addr, v)
	return true
}

// PutUint64 writes eight bytes.
//
//hot:bench BenchmarkPutUint64
//go:nosplit
func (r *RMA) PutUint64(v, addr uint64, k uct.RKey) uct.Status {
	if r.TryPutUint64(v, addr, k) {
		return ucs.OK
	}
	return r.putUint64Slow(v, addr, k)
}

// PutShort copies p to addr.
//
//hot:bench BenchmarkPutShort
func (r *RMA) PutShort(p []byte, addr uint64, k uct.RKey) uct.Status {
	rec := recordAt(k)
	if len(p) != 8 || r.gate != ucs.OK || addr-rec.base >= rec.put8 || rec.gen != rec.slot.gen.Load() {
		return r.transfer(p, addr, k, permPut)
	}
	rec.store8(addr, binary.LittleEndian.Uint64(p))
	return ucs.OK
}

// PutBcopy is PutShort.
func (r *RMA) PutBcopy(p []byte, addr uint64, k uct.RKey, _ uct.Token) uct.Status {
	return r.PutShort(p, addr, k)
}

// PutZcopy copies the buffers of v to addr, one after the other.
func (r *RMA) PutZcopy(v []uct.Vec, addr uint64, k uct.RKey, _ uct.Token) uct.Status {
	return r.zcopy(v, addr, k, permPut)
}

// GetUint64 reads eight bytes.
//
//hot:bench BenchmarkGetUint64
func (r *RMA) GetUint64(addr uint64, k uct.RKey, _ uct.Token) (uint64, uct.Status) {
	rec := recordAt(k)
	if r.gate != ucs.OK || rec.perm&fastGet == 0 || addr-rec.base > rec.last8 || rec.slot.gen.Load() != rec.gen {
		return r.getUint64Slow(addr, k)
	}
	return rec.load8(addr), ucs.OK
}

// GetShort copies len(p) bytes from addr into p.
//
//hot:bench BenchmarkGetShort
func (r *RMA) GetShort(p []byte, addr uint64, k uct.RKey) uct.Status {
	rec := recordAt(k)
	if len(p) != 8 || r.gate != ucs.OK || rec.perm&fastGet == 0 || addr-rec.base > rec.last8 || rec.slot.gen.Load() != rec.gen {
		return r.transfer(p, addr, k, permGet)
	}
	binary.LittleEndian.PutUint64(p, rec.load8(addr))
	return ucs.OK
}

// GetBcopy is GetShort.
func (r *RMA) GetBcopy(p []byte, addr uint64, k uct.RKey, _ uct.Token) uct.Status {
	return r.GetShort(p, addr, k)
}

// GetZcopy copies from addr into the buffers of v, one after the other.
func (r *RMA) GetZcopy(v []uct.Vec, addr uint64, k uct.RKey, _ uct.Token) uct.Status {
	return r.zcopy(v, addr, k, permGet)
}

// zcopy checks the whole range before the first buffer is copied.
func (r *RMA) zcopy(v []uct.Vec, addr uint64, k uct.RKey, perm uint32) uct.Status {
	if r.gate != ucs.OK {
		return r.gate
	}
	rec, n := recordAt(k), uint64(0)
	for i := range v {
		if n += uint64(len(v[i].Buf)); n > rec.size {
			return ucs.InvalidParam
		}
	}
	st := rec.check(addr, n, perm)
	for i := 0; i < len(v) && st == ucs.OK; i++ {
		st = r.transfer(v[i].Buf, addr, k, perm)
		addr += uint64(len(v[i].Buf))
	}
	return st
}
