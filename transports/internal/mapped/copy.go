package mapped

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Copier copies from and to memory of another process that is not mapped here.
//
// Concurrency: any goroutine. Far does not retain the buffers. addr lies within the region. Far
// must detect that the region is gone.
type Copier interface {
	// Read fills p from the owner's address addr.
	Read(p []byte, addr uint64) uct.Status
	// Write copies p to the owner's address addr.
	Write(p []byte, addr uint64) uct.Status
}

// enter counts an access to memory that its owner may take back. It returns false if the owner
// has revoked the region.
//
// Invariant: the owner waits for every access that enter admits. The owner stores the
// generation and then loads the count; enter adds to the count and then loads the generation.
// Go's atomics are sequentially consistent, so at least one of the two sees the other's write.
func (s *Slot) enter(gen uint64) bool {
	s.inUse.Add(1)
	if s.gen.Load() == gen {
		return true
	}
	s.leave()
	return false
}

func (s *Slot) leave() { s.inUse.Add(^uint64(0)) }

// Enter counts an access to memory of generation gen, and Leave must follow. It returns false,
// and does not count, if the region was revoked. Implementations of Far call it.
func (s *Slot) Enter(gen uint64) bool { return s.enter(gen) }

// Leave ends the access that Enter counted.
func (s *Slot) Leave() { s.leave() }

//go:noinline
func (r *RMA) put(p []byte, addr uint64, k uct.RKey) uct.Status {
	if r.gate != ucs.OK {
		return r.gate
	}
	rec := recordAt(k)
	if st := rec.check(addr, uint64(len(p)), permPut); st != ucs.OK {
		return st
	}
	for len(p) > 0 {
		n := min(len(p), maxCopyBytes)
		if st := r.putChunk(rec, p[:n], addr); st != ucs.OK {
			return st
		}
		p, addr = p[n:], addr+uint64(n)
	}
	return ucs.OK
}

func (r *RMA) putChunk(rec *record, p []byte, addr uint64) uct.Status {
	switch {
	case rec.perm&isCopied != 0:
		return r.keys.copierOf(rec).Write(p, addr)
	case rec.perm&isCounted == 0:
		copy(rec.bytes(addr, uint64(len(p))), p)
		return ucs.OK
	case !rec.slot.enter(rec.gen):
		return ucs.RemoteAccess
	}
	if len(p) == 8 {
		rec.store8(addr, binary.LittleEndian.Uint64(p))
	} else {
		copy(rec.bytes(addr, uint64(len(p))), p)
	}
	rec.slot.leave()
	return ucs.OK
}

//go:noinline
func (r *RMA) get(p []byte, addr uint64, k uct.RKey) uct.Status {
	if r.gate != ucs.OK {
		return r.gate
	}
	rec := recordAt(k)
	if st := rec.check(addr, uint64(len(p)), permGet); st != ucs.OK {
		return st
	}
	for len(p) > 0 {
		n := min(len(p), maxCopyBytes)
		if st := r.getChunk(rec, p[:n], addr); st != ucs.OK {
			return st
		}
		p, addr = p[n:], addr+uint64(n)
	}
	return ucs.OK
}

func (r *RMA) getChunk(rec *record, p []byte, addr uint64) uct.Status {
	switch {
	case rec.perm&isCopied != 0:
		return r.keys.copierOf(rec).Read(p, addr)
	case rec.perm&isCounted == 0:
		copy(p, rec.bytes(addr, uint64(len(p))))
		return ucs.OK
	case !rec.slot.enter(rec.gen):
		return ucs.RemoteAccess
	}
	if len(p) == 8 {
		binary.LittleEndian.PutUint64(p, rec.load8(addr))
	} else {
		copy(p, rec.bytes(addr, uint64(len(p))))
	}
	rec.slot.leave()
	return ucs.OK
}

//go:noinline
func (r *RMA) putUint64Slow(v, addr uint64, k uct.RKey) uct.Status {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	return r.put(noescape(b[:]), addr, k)
}

//go:noinline
func (r *RMA) getUint64Slow(addr uint64, k uct.RKey) (uint64, uct.Status) {
	var b [8]byte
	st := r.get(noescape(b[:]), addr, k)
	return binary.LittleEndian.Uint64(b[:]), st
}
