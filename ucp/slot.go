// Package request has the slots of a worker's operations: the free list, the generations by which a
// peer or a caller refers to an operation, chains of slots, and the completions that nobody has
// claimed. Callbacks, registered memory and all else that refers to a worker stays in package ucp, by
// the index of the slot. docs/requests.md has the states.
package ucp

import (
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// slotState is the state of a slot.
type slotState uint8

const (
	slotFree slotState = iota
	slotLive           // the operation has not completed
	slotDone           // it completed and its result has not been read
	slotRead           // it failed and its error was read; kept until the slot is needed
)

// slotFlags are properties of an operation.
type slotFlags uint8

const (
	flagHasResult slotFlags = 1 << iota // has a result, which is kept until a caller consumes it
	flagNotify                          // a callback or a goroutine waits for the completion
	flagTied                            // a receive that fails with its endpoint
	flagPending                         // on its lane's pending queue
	flagExtra                           // the slab holds more for this slot, outside of it
	flagChild                           // a part of an operation with several parts
	flagReported                        // its error was reported, or no caller is interested in it
	flagUnclaimed                       // in the list of unclaimed completions
)

// slotHeader is the part of a slot that means the same in every operation.
type slotHeader struct {
	gen    uint32 // 31 bits, never 0; incremented when the slot is released
	next   uint32 // in the free list, a chain, or the list of unclaimed completions
	op     opKind
	state  slotState
	status ucs.Status
	flags  slotFlags
	ep     uint32 // index of the endpoint; 0: none
	lane   uint32 // index of the lane; 0: none
	parts  uint32 // parts that have not completed
}

// slot is an operation in flight, and then its result. It has 64 bytes and no pointer: the
// garbage collector never scans it, and writes to it need no write barrier. The caller's
// buffer is at the same index in Table.Bufs.
//
// Behind the header each operation has fields of its own: a view is a struct of the same
// size, and as reads the slot as that view. Slots move in memory when the slab grows, so a
// *slot and a view are valid until the next alloc.
type slot struct {
	slotHeader
	mode  uint32 // the first field of a view; alloc clears it
	prev  uint32 // in a chain
	words [4]uint64
}

// table holds the slots of a worker and the callers' buffers. What else an operation holds is
// outside of it, by the index of its slot.
type table struct {
	slots []slot   // by index; 0 is no slot
	bufs  [][]byte // the callers' buffers; sweep clears those of completed operations
	free  uint32   // first free slot; 0: grow

	swept    uint32   // slot that sweep cleared last
	tidied   ucs.Time // time of the last call of tidy
	sweptAll ucs.Time // when sweepAll swept last; 0: never

	unclaimedHead, unclaimedTail uint32 // list of unclaimed completions
	unclaimed                    int    // its length
}

const (
	slabStart = 256
	// maxUnclaimed is the number of unclaimed completions that are kept.
	maxUnclaimed = 1024
	genMask      = 1<<31 - 1
)

// alloc returns a live slot. It clears the fields that all operations read; the caller
// sets the others.
//
//hot:bench BenchmarkTagPair
func (b *table) alloc(op opKind) uint32 {
	i := b.free
	if i == 0 {
		i = b.grow()
	}
	s := &b.slots[i]
	b.free = s.next
	s.op, s.state, s.status, s.flags = op, slotLive, ucs.OK, 0
	s.ep, s.lane, s.parts, s.mode = 0, 0, 0, 0
	return i
}

// nextToken returns the token of the slot that the next take returns. So an operation takes a
// slot only if the transport returns InProgress. It is sound because a transport never
// calls back outside its Progress.
func (b *table) nextToken() uct.Token {
	if b.free == 0 {
		b.grow()
	}
	return b.token(b.free)
}

// token returns the uct.Token of slot i; id returns the id that the caller of an
// operation gets.
func (b *table) token(i uint32) uct.Token { return uct.Token(b.id(i)) }

func (b *table) id(i uint32) uint64 { return uint64(b.slots[i].gen)<<32 | uint64(i) }

// find returns the slot with this id, 0 if it was released.
func (b *table) find(id uint64) uint32 {
	i := uint32(id)
	if int(i) >= len(b.slots) || b.slots[i].gen != uint32(id>>32) || b.slots[i].state == slotFree {
		return 0
	}
	return i
}

// live reports whether operation id has not completed.
func (b *table) live(id uint64) bool {
	i := b.find(id)
	return i != 0 && b.slots[i].state == slotLive
}

// recycle makes slot i free. Requests that refer to it report success from now on.
func (b *table) recycle(i uint32) {
	s := &b.slots[i]
	b.bufs[i] = nil
	s.gen = nextGen(s.gen)
	s.state = slotFree
	s.next = b.free
	b.free = i
}

// nextGen returns the generation after g.
func nextGen(g uint32) uint32 { return max((g+1)&genMask, 1) }

// grow adds slots and returns the first free one.
//
//go:noinline
func (b *table) grow() uint32 {
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

// addUnclaimed keeps slot i, whose result may never be read, until maxUnclaimed others follow. It
// returns the slot that is not kept any more, 0 if there is none.
func (b *table) addUnclaimed(i uint32) (first uint32) {
	s := &b.slots[i]
	if s.flags&flagUnclaimed != 0 {
		return 0
	}
	s.flags |= flagUnclaimed
	s.next = 0
	if b.unclaimedTail == 0 {
		b.unclaimedHead = i
	} else {
		b.slots[b.unclaimedTail].next = i
	}
	b.unclaimedTail = i
	if b.unclaimed++; b.unclaimed <= maxUnclaimed {
		return 0
	}
	first = b.unclaimedHead
	b.unclaimedHead = b.slots[first].next
	b.unclaimed--
	return first
}

// chain is a doubly linked queue of live slots, through slot.next and slot.prev. A slot
// is in at most one chain.
type chain struct{ head, tail uint32 }

func (b *table) push(c *chain, i uint32) {
	s := &b.slots[i]
	s.next, s.prev = 0, c.tail
	if c.tail == 0 {
		c.head = i
	} else {
		b.slots[c.tail].next = i
	}
	c.tail = i
}

// unlink removes slot i from c, which contains it.
func (b *table) unlink(c *chain, i uint32) {
	s := &b.slots[i]
	if s.prev == 0 {
		c.head = s.next
	} else {
		b.slots[s.prev].next = s.next
	}
	if s.next == 0 {
		c.tail = s.prev
	} else {
		b.slots[s.next].prev = s.prev
	}
}

// The fast paths of receives leave the buffer of a completed operation in Table.Bufs:
// clearing it would slow down each of them. The slot's next operation overwrites it, or
// sweep clears it. sweep reaches every slot within sweepTime while the worker is
// progressed. All other paths clear the buffer themselves, in dropBuffers or release. So no
// buffer stays referenced while the worker sleeps.

// sweepTime is the longest duration of a sweep over all slots.
const sweepTime = 500 * time.Millisecond

// sweep clears the buffers of completed operations in the next n slots.
func (b *table) sweep(n int) {
	for range n {
		if b.swept++; int(b.swept) >= len(b.slots) {
			b.swept = 1
		}
		if b.slots[b.swept].state != slotLive && b.bufs[b.swept] != nil {
			b.bufs[b.swept] = nil
		}
	}
}

// tidy sweeps the slots that are due since its last call. Progress passes call it.
func (b *table) tidy(now ucs.Time) {
	past := min(now.Sub(b.tidied), sweepTime)
	b.tidied = now
	due := len(b.slots) * int(past/time.Microsecond) / int(sweepTime/time.Microsecond)
	b.sweep(min(max(16, due), len(b.slots)))
}

// sweepAll sweeps all slots before the worker sleeps. If it did so a moment ago, it returns
// how long the worker may sleep until the next sweep is due. 0: without a bound.
func (b *table) sweepAll(now ucs.Time) time.Duration {
	if wait := b.sweptAll.Add(sweepTime / 2).Sub(now); b.sweptAll != 0 && wait > 0 {
		return wait
	}
	b.sweptAll = now
	b.sweep(len(b.slots))
	return 0
}

// idCheck is the result of checking an id that a peer sent. A peer may only name an
// operation that it was sent the id of. Anything else is a protocol violation: see
// sendByID and fetchByID.
type idCheck uint8

const (
	idLive      idCheck = iota // an operation that has not completed
	idCompleted                // an operation that has completed: the message crossed its completion
	idUnknown                  // no operation whose id any peer was sent
)

// checkID classifies an id. It does not check which peer sent it.
func (b *table) checkID(id uint64) (uint32, idCheck) {
	i, gen := uint32(id), uint32(id>>32)
	if i == 0 || int(i) >= len(b.slots) || gen == 0 || gen > genMask {
		return 0, idUnknown
	}
	s := &b.slots[i]
	switch {
	case s.gen != gen && (s.gen-gen)&genMask > genMask/2:
		return 0, idUnknown // a generation not reached yet
	case s.gen != gen:
		return 0, idCompleted
	case s.state == slotFree:
		return 0, idUnknown // the slot was not used in this generation yet
	case s.state != slotLive:
		return 0, idCompleted
	}
	return i, idLive
}
