package ucp

import (
	"math"

	"github.com/goucx/goucx/ucp/internal/pool"
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
)

// slab holds the slots of a worker, and what belongs to an operation outside of its slot.
type slab struct {
	request.Table

	// State outside of the slots that have request.FlagExtra.
	vecs      map[uint32]vec        // buffers in pieces: of request.TagSendV, and of receives
	listeners []listener            // callbacks and waiters by slot; shorter than slots if none was needed
	errs      map[uint32]error      // errors that outlive what they are made from
	copies    map[uint32]pool.Chunk // pool memory that holds the buffer
	opMems    []opMem               // registered memory by slot; shorter than slots if none was needed
	pool      *pool.Pool
}

func (b *slab) init(p *pool.Pool) {
	b.vecs = make(map[uint32]vec)
	b.errs = make(map[uint32]error)
	b.copies = make(map[uint32]pool.Chunk)
	b.pool = p
	b.Grow()
}

// release releases what the operation in slot i holds and makes the slot free.
func (b *slab) release(i uint32) {
	if b.Slots[i].Flags&request.FlagExtra != 0 {
		b.dropExtra(i)
	}
	b.Recycle(i)
}

// dropExtra drops all state outside of slot i. The slot may be an unclaimed completion whose result
// the caller consumes: a refused get of a word.
//
//go:noinline
func (b *slab) dropExtra(i uint32) {
	b.RemoveUnclaimed(i)
	b.dropBuffers(i)
	if int(i) < len(b.listeners) {
		b.listeners[i] = listener{}
	}
	delete(b.errs, i)
}

// dropBuffers drops the memory of the completed operation in slot i. Its result stays.
func (b *slab) dropBuffers(i uint32) {
	b.Bufs[i] = nil
	if b.Slots[i].Flags&request.FlagExtra == 0 {
		return
	}
	if c, ok := b.copies[i]; ok {
		b.pool.Put(c)
		delete(b.copies, i)
	}
	b.detachMem(i)
	delete(b.vecs, i)
}

// vec is a buffer in pieces. A message goes through it once, so it remembers the piece of the
// last access.
type vec struct {
	pieces [][]byte
	n      uint64 // total length
	piece  int    // piece of the last access
	before uint64 // bytes in the pieces before it
}

// maxPieces is the largest number of pieces of a buffer.
const maxPieces = 1024

// newVec returns a buffer of these pieces, or the status of the refusal.
func newVec(pieces [][]byte) (vec, ucs.Status) {
	v := vec{pieces: pieces}
	if len(pieces) > maxPieces {
		return v, refusedPieces
	}
	for _, p := range pieces {
		v.n += uint64(len(p))
	}
	if v.n > math.MaxInt {
		return v, ucs.TooLong
	}
	return v, ucs.OK
}

// from returns the index of the piece that has byte off, and the place in that piece.
func (v *vec) from(off uint64) (k int, at uint64) {
	if off < v.before {
		v.piece, v.before = 0, 0
	}
	for v.piece < len(v.pieces) && off-v.before >= uint64(len(v.pieces[v.piece])) {
		v.before += uint64(len(v.pieces[v.piece]))
		v.piece++
	}
	return v.piece, off - v.before
}

// gather copies the bytes from off on to p, and returns their number.
func (v *vec) gather(p []byte, off uint64) (n int) {
	for k, at := v.from(off); k < len(v.pieces) && n < len(p); k, at = k+1, 0 {
		n += copy(p[n:], v.pieces[k][at:])
	}
	return n
}

// scatter copies p to the bytes from off on, as far as there is room.
func (v *vec) scatter(p []byte, off uint64) {
	for k, at := v.from(off); k < len(v.pieces) && len(p) > 0; k, at = k+1, 0 {
		p = p[copy(v.pieces[k][at:], p):]
	}
}

// inPieces reports whether the buffer of slot i is a vec.
func (b *slab) inPieces(i uint32) bool {
	if b.Slots[i].Flags&request.FlagExtra == 0 {
		return false
	}
	_, ok := b.vecs[i]
	return ok
}

// room returns the length of the buffer of slot i.
func (b *slab) room(i uint32) uint64 {
	if b.Slots[i].Flags&request.FlagExtra != 0 {
		if v, ok := b.vecs[i]; ok {
			return v.n
		}
	}
	return uint64(len(b.Bufs[i]))
}

// store copies p to the buffer of slot i from byte off on, as far as there is room.
func (b *slab) store(i uint32, p []byte, off uint64) {
	if b.inPieces(i) {
		v := b.vecs[i]
		v.scatter(p, off)
		b.vecs[i] = v
	} else if buf := b.Bufs[i]; off < uint64(len(buf)) {
		copy(buf[off:], p)
	}
}

// keepUnclaimed keeps slot i, whose result may never be read, for some time.
func (b *slab) keepUnclaimed(i uint32) {
	if first := b.AddUnclaimed(i); first != 0 {
		b.release(first)
	}
}
