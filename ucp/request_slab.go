package ucp

import (
	"github.com/goucx/goucx/ucp/internal/pool"
	"github.com/goucx/goucx/ucp/internal/request"
)

// slab holds the slots of a worker, and what belongs to an operation outside of its slot.
type slab struct {
	request.Table

	// State outside of the slots that have request.FlagExtra.
	vecs      map[uint32][][]byte   // pieces of request.TagSendV
	listeners []listener            // callbacks and waiters by slot; shorter than slots if none was needed
	errs      map[uint32]error      // errors that outlive what they are made from
	copies    map[uint32]pool.Chunk // pool memory that holds the buffer
	opMems    []opMem               // registered memory by slot; shorter than slots if none was needed
	pool      *pool.Pool
}

func (b *slab) init(p *pool.Pool) {
	b.vecs = make(map[uint32][][]byte)
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

// dropExtra drops all state outside of slot i.
//
//go:noinline
func (b *slab) dropExtra(i uint32) {
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

// keepUnclaimed keeps slot i, whose result may never be read, for some time.
func (b *slab) keepUnclaimed(i uint32) {
	if first := b.AddUnclaimed(i); first != 0 {
		b.release(first)
	}
}
