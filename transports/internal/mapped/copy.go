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

// transfer copies p to addr if perm is permPut, and from addr to p if it is permGet, in pieces.
//
// Long mapped memory is copied in another direction than the last time. What a repeated transfer copies first is then what
// this core's cache holds of the last one: 1 MB is copied at 35 GB/s instead of 27 where source and destination fill the
// cache of the second level, 2 MB at 20 instead of 14. The last piece is always the last: programs poll the last
// byte of a put.
//
//go:noinline
func (r *RMA) transfer(p []byte, addr uint64, k uct.RKey, perm uint32) uct.Status {
	if r.gate != ucs.OK {
		return r.gate
	}
	rec := recordAt(k)
	if st := rec.check(addr, uint64(len(p)), perm); st != ucs.OK || len(p) == 0 {
		return st
	}
	piece, backward := maxCopyBytes, false
	if len(p) > maxCopyBytes && rec.perm&isCopied == 0 {
		r.backward = !r.backward
		piece, backward = turnBytes, r.backward
	}
	last := (len(p) - 1) / piece
	for i := range last + 1 {
		if backward && i < last {
			i = last - 1 - i
		}
		q, at := p[i*piece:min((i+1)*piece, len(p))], addr+uint64(i*piece)
		if rec.perm&isCopied != 0 {
			var st ucs.Status
			c := (*r.keys.copiers.Load())[rec.copier]
			if perm == permPut {
				st = c.Write(q, at)
			} else {
				st = c.Read(q, at)
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
		switch n := len(q); { // peers may access a word of counted memory atomically
		case counted && n == 8 && perm == permPut:
			rec.store8(at, binary.LittleEndian.Uint64(q))
		case counted && n == 8:
			binary.LittleEndian.PutUint64(q, rec.load8(at))
		case perm == permPut:
			copy(rec.bytes(at, uint64(n)), q)
		default:
			copy(q, rec.bytes(at, uint64(n)))
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
