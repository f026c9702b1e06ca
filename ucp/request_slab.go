package ucp

import "github.com/goucx/goucx/ucp/internal/pool"

// slab holds the slots of a worker, and what belongs to an operation outside of its slot.
type slab struct {
	table

	// State outside of the slots that have flagExtra.
	vecs      map[uint32][][]byte   // pieces of opTagSendV
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
	b.grow()
}

// release releases what the operation in slot i holds and makes the slot free.
func (b *slab) release(i uint32) {
	if b.slots[i].flags&flagExtra != 0 {
		b.dropExtra(i)
	}
	b.recycle(i)
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
	b.bufs[i] = nil
	if b.slots[i].flags&flagExtra == 0 {
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
	if first := b.addUnclaimed(i); first != 0 {
		b.release(first)
	}
}
