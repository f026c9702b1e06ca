package ucp

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// opKind is what a slot is used for.
type opKind uint8

// Operations. ops.go has their names and how each is tried again.
const (
	opNone opKind = iota
	opTagSend
	opTagSendUint64
	opTagSendV
	opTagSendSync
	opAMSend
	opTagRecv
	opAMRecv
	opAMFetch
	opTaken
	opFlush
	opFence
	opFenceAcross // of several lanes; its parts are opFence
	opGiveUp
	opControl
	opPut
	opPutUint64
	opGet
	opGetUint64
	opAtomic
	opFetch
	opRead
	opHold // of a lane that nobody holds, until the answers that went by it have arrived
	numOps
)

// slotState is where a slot is in its life.
type slotState uint8

const (
	slotFree slotState = iota
	slotLive           // the operation has not ended
	slotDone           // it ended and its outcome has not been read
	slotRead           // it ended badly and was read; kept until the place is needed
)

// slotFlags are properties of an operation.
type slotFlags uint8

const (
	flagKept     slotFlags = 1 << iota // has a result: kept until it is consumed
	flagNotify                         // a callback waits for the end
	flagTied                           // a receive that ends with its endpoint
	flagWaiting                        // on its lane's pending queue
	flagAside                          // something is kept beside the slot
	flagChild                          // a part of the operation in parent
	flagReported                       // its error was told to somebody
	flagOrphan                         // in the ring of outcomes that may be forgotten
)

// slot is a request in flight: 64 bytes without a pointer, so that the collector
// never looks at it and writing it needs no barrier. The user's buffer lies at
// the same index of Worker.bufs.
//
// Slots move when the slab grows, so a *slot is good until the next take.
type slot struct {
	gen    uint32 // 31 bits, never 0; goes up when the slot is released
	next   uint32 // of the free list, or of the ring of orphans
	op     opKind
	state  slotState
	status ucs.Status
	flags  slotFlags
	ep     uint32 // index of the endpoint in Worker.eps; 0: none
	lane   uint32 // index of the lane in Thread.lanes; 0: none
	parent uint32 // slot of which this is a part, with flagChild
	tag    uint64 // tag; the tag received; the value fetched
	arg    uint64 // scalar to send, mask of a receive, remote offset
	off    uint64 // bytes done
	n      uint64 // bytes in all; bytes received
	left   uint32 // parts that have not ended
	aux    uint32 // at the operation's disposal
}

// slab holds the slots of a worker.
type slab struct {
	slots []slot   // by index; 0 is no slot
	bufs  [][]byte // the users' buffers; of an operation that has ended: see sweep.go
	free  uint32   // first free slot; 0: grow

	swept    uint32   // where sweep goes on
	tidied   ucs.Time // when tidy was called last
	sweptAll ucs.Time // when sweepAll swept last; 0: never

	// Beside slots with flagAside.
	vecs   map[uint32][][]byte // pieces of opTagSendV
	notes  []note              // callbacks by slot, where there ever was one
	errs   map[uint32]error    // outcomes that outlive their endpoint
	copies map[uint32]chunk    // memory of pool that holds the buffer
	loans  []loan              // registered memory by slot, where there ever was some
	pool   *pool

	orphans            int // slots in the ring
	orphHead, orphTail uint32
}

const (
	slabStart = 256
	// maxOrphans outcomes that nobody may ever read are remembered.
	maxOrphans = 1024
	genMask    = 1<<31 - 1
)

func (b *slab) init(p *pool) {
	b.vecs = make(map[uint32][][]byte)
	b.errs = make(map[uint32]error)
	b.copies = make(map[uint32]chunk)
	b.pool = p
	b.grow()
}

// take gives a slot that is live, with zeroed state beside its generation.
// hot: BenchmarkTagPair
func (b *slab) take(op opKind) uint32 {
	i := b.free
	if i == 0 {
		i = b.grow()
	}
	s := &b.slots[i]
	b.free = s.next
	s.op, s.state, s.status, s.flags = op, slotLive, ucs.OK, 0
	s.ep, s.lane, s.left, s.parent = 0, 0, 0, 0
	return i
}

// peek gives the token that the next take will have, so that an operation takes
// its slot only where it answers InProgress: a transport never calls back
// outside its Progress.
func (b *slab) peek() uct.Token {
	if b.free == 0 {
		b.grow()
	}
	return b.token(b.free)
}

// token names slot i towards a transport, id towards the user.
func (b *slab) token(i uint32) uct.Token { return uct.Token(b.id(i)) }

func (b *slab) id(i uint32) uint64 { return uint64(b.slots[i].gen)<<32 | uint64(i) }

// find gives the slot that id names, 0 where it is released.
func (b *slab) find(id uint64) uint32 {
	i := uint32(id)
	if int(i) >= len(b.slots) || b.slots[i].gen != uint32(id>>32) || b.slots[i].state == slotFree {
		return 0
	}
	return i
}

// live reports whether operation id has not ended.
func (b *slab) live(id uint64) bool {
	i := b.find(id)
	return i != 0 && b.slots[i].state == slotLive
}

// release makes slot i free; handles of it say from now on that it ended well.
func (b *slab) release(i uint32) {
	s := &b.slots[i]
	if s.flags&flagAside != 0 {
		b.forget(i)
	}
	b.bufs[i] = nil
	s.gen = nextGen(s.gen)
	s.state = slotFree
	s.next = b.free
	b.free = i
}

func nextGen(g uint32) uint32 { return max((g+1)&genMask, 1) }

// forget drops what is kept beside slot i.
//
//go:noinline
func (b *slab) forget(i uint32) {
	b.letGo(i)
	if int(i) < len(b.notes) {
		b.notes[i] = note{}
	}
	delete(b.errs, i)
}

// letGo drops the memory of the operation in slot i, which has ended. Its outcome
// stays.
func (b *slab) letGo(i uint32) {
	b.bufs[i] = nil
	if b.slots[i].flags&flagAside == 0 {
		return
	}
	if c, ok := b.copies[i]; ok {
		b.pool.put(c)
		delete(b.copies, i)
	}
	b.giveBack(i)
	delete(b.vecs, i)
}

// grow adds slots and gives the first free one.
//
//go:noinline
func (b *slab) grow() uint32 {
	n := max(len(b.slots), 1)
	k := max(slabStart, n/2)
	b.slots = append(b.slots, make([]slot, n+k-len(b.slots))...)
	b.bufs = append(b.bufs, make([][]byte, n+k-len(b.bufs))...)
	for i := n + k - 1; i >= n; i-- {
		b.slots[i].gen = 1
		b.slots[i].next = b.free
		b.free = uint32(i)
	}
	return b.free
}

// orphan remembers the outcome of slot i, which nobody may ever read again,
// until maxOrphans others have come.
func (b *slab) orphan(i uint32) {
	s := &b.slots[i]
	if s.flags&flagOrphan != 0 {
		return
	}
	s.flags |= flagOrphan
	s.next = 0
	if b.orphTail == 0 {
		b.orphHead = i
	} else {
		b.slots[b.orphTail].next = i
	}
	b.orphTail = i
	b.orphans++
	if b.orphans > maxOrphans {
		first := b.orphHead
		b.orphHead = b.slots[first].next
		b.orphans--
		b.release(first)
	}
}
