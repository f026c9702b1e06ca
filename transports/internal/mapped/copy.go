package mapped

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Copier copies from and to memory of another process that is not mapped here.
//
// Concurrency: any goroutine. A Copier does not retain the buffers. addr lies within the region. It
// must detect that the region is gone.
type Copier interface {
	// Read fills p from the owner's address addr.
	Read(p []byte, addr uint64) uct.Status
	// Write copies p to the owner's address addr.
	Write(p []byte, addr uint64) uct.Status
}

// Enter counts an access to memory that its owner may take back, and Leave must follow. It returns
// false, and does not count, if the owner has revoked the region. Implementations of Copier call it.
//
// Invariant: the owner waits for every access that Enter admits. The owner stores the
// generation and then loads the count; Enter adds to the count and then loads the generation.
// Go's atomics are sequentially consistent, so at least one of the two sees the other's write.
func (s *Slot) Enter(gen uint64) bool {
	s.inUse.Add(1)
	if s.gen.Load() == gen {
		return true
	}
	s.Leave()
	return false
}

// Leave ends the access that Enter counted.
func (s *Slot) Leave() { s.inUse.Add(^uint64(0)) }

// transfer copies p to addr if perm is permPut, and from addr to p if it is permGet, in pieces of at
// most maxCopyBytes.
//
//go:noinline
func (r *RMA) transfer(p []byte, addr uint64, k uct.RKey, perm uint32) uct.Status {
	if r.gate != ucs.OK {
		return r.gate
	}
	rec := recordAt(k)
	if st := rec.check(addr, uint64(len(p)), perm); st != ucs.OK {
		return st
	}
	for n := 0; len(p) > 0; p, addr = p[n:], addr+uint64(n) {
		n = min(len(p), maxCopyBytes)
		if rec.perm&isCopied != 0 {
			var st ucs.Status
			c := (*r.keys.copiers.Load())[rec.copier]
			if perm == permPut {
				st = c.Write(p[:n], addr)
			} else {
				st = c.Read(p[:n], addr)
			}
			if st != ucs.OK {
				return st
			}
			continue
		}
		counted := rec.perm&isCounted != 0
		if counted && !rec.slot.Enter(rec.gen) {
			return ucs.RemoteAccess
		}
		switch { // peers may access a word of counted memory atomically
		case counted && n == 8 && perm == permPut:
			rec.store8(addr, binary.LittleEndian.Uint64(p))
		case counted && n == 8:
			binary.LittleEndian.PutUint64(p, rec.load8(addr))
		case perm == permPut:
			copy(rec.bytes(addr, uint64(n)), p)
		default:
			copy(p, rec.bytes(addr, uint64(n)))
		}
		if counted {
			rec.slot.Leave()
		}
	}
	return ucs.OK
}

//go:noinline
func (r *RMA) putUint64Slow(v, addr uint64, k uct.RKey) uct.Status {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	return r.transfer(noescape(b[:]), addr, k, permPut)
}

//go:noinline
func (r *RMA) getUint64Slow(addr uint64, k uct.RKey) (uint64, uct.Status) {
	var b [8]byte
	st := r.transfer(noescape(b[:]), addr, k, permGet)
	return binary.LittleEndian.Uint64(b[:]), st
}
