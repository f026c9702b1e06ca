// Package request has the slots of a worker's operations: the free list, the generations by which a
// peer or a caller refers to an operation, chains of slots, and the unclaimed completions.
// Callbacks, registered memory and all else that refers to a worker stays in package ucp, by
// the index of the slot. docs/requests.md has the states.
package request

import (
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// State is the state of a slot.
type State uint8

// States of a slot.
const (
	StateFree State = iota
	StateLive       // the operation has not completed
	StateDone       // it completed and its result has not been read
	StateRead       // it failed and its error was read; kept until the slot is needed
)

// Flags are properties of an operation.
type Flags uint8

// Flags of a slot.
const (
	FlagHasResult Flags = 1 << iota // has a result, which is kept until a caller consumes it
	FlagNotify                      // a callback or a goroutine waits for the completion
	FlagTied                        // a receive that fails with its endpoint
	FlagPending                     // on its lane's pending queue
	FlagExtra                       // the slab holds more for this slot, outside of it
	FlagChild                       // a part of an operation with several parts
	FlagReported                    // its error was reported, or no caller is interested in it
	flagUnclaimed                   // in the list of unclaimed completions
)

// Header is the part of a slot that means the same in every operation.
type Header struct {
	Gen    uint32 // 31 bits, never 0; incremented when the slot is released
	Next   uint32 // in the free list, a chain, or the list of unclaimed completions
	Op     Kind
	State  State
	Status ucs.Status
	Flags  Flags
	EP     uint32 // index of the endpoint; 0: none
	Lane   uint32 // index of the lane; 0: none
	Parts  uint32 // parts that have not completed
}

// ReceivedTag is the Outcome of a tag receive that has succeeded and has no state outside of its
// slot, as nearly all do.
const ReceivedTag = uint32(TagRecv) | uint32(StateDone)<<8 | uint32(ucs.OK)<<16 | uint32(FlagHasResult)<<24

// Outcome returns Op, State, Status and Flags in one word, which the compiler loads at once.
func (h *Header) Outcome() uint32 {
	return uint32(h.Op) | uint32(h.State)<<8 | uint32(h.Status)<<16 | uint32(h.Flags)<<24
}

// Slot is an operation in flight, and then its result. It has 64 bytes and no pointer: the
// garbage collector never scans it, and writes to it need no write barrier. The caller's
// buffer is at the same index in Table.Bufs.
//
// Behind the header each operation has fields of its own: a view is a struct of the same
// size, and As reads the slot as that view. Slots move in memory when the table grows, so a
// *Slot and a view are valid until the next Alloc.
type Slot struct {
	Header
	Mode uint32 // the first field of a view; Alloc clears it
	prev uint32 // in a chain
	_    [4]uint64
}

// Table holds the slots of a worker and the callers' buffers. What else an operation holds is
// outside of it, by the index of its slot.
type Table struct {
	Slots    []Slot   // by index; 0 is no slot
	Bufs     [][]byte // the callers' buffers, none at 0; sweep clears those of completed operations
	FreeList uint32   // first free slot; 0: grow

	swept    uint32   // slot that sweep cleared last
	tidied   ucs.Time // time of the last call of Tidy
	sweptAll ucs.Time // when SweepAll swept last; 0: never

	Unclaimed, unclaimedTail uint32 // list of unclaimed completions
	numUnclaimed             int    // its length
}

const (
	startSlots = 256
	// maxUnclaimed is the number of unclaimed completions that are kept.
	maxUnclaimed = 1024
	// GenMask is the largest generation. All generations are odd: none is 0, and the next one takes two instructions.
	GenMask = 1<<31 - 1
	// FirstGen is the first generation.
	FirstGen = 1
)

// Alloc returns a live slot. It clears the fields that all operations read; the caller
// sets the others.
//
//hot:bench BenchmarkTagPair
func (b *Table) Alloc(op Kind) uint32 {
	i := b.FreeList
	if i == 0 {
		i = b.Grow()
	}
	s := &b.Slots[i]
	b.FreeList = s.Next
	s.Op, s.State, s.Status, s.Flags = op, StateLive, ucs.OK, 0
	s.EP, s.Lane, s.Parts, s.Mode = 0, 0, 0, 0
	return i
}

// NextToken returns the token of the slot that the next Alloc returns. So an operation takes a
// slot only if the transport returns InProgress. It is sound because a transport never
// calls back outside its Progress.
func (b *Table) NextToken() uct.Token {
	if b.FreeList == 0 {
		b.Grow()
	}
	return b.Token(b.FreeList)
}

// Token returns the uct.Token of slot i.
func (b *Table) Token(i uint32) uct.Token { return uct.Token(b.ID(i)) }

// ID returns the id of slot i, which the caller of an operation gets.
func (b *Table) ID(i uint32) uint64 { return uint64(b.Slots[i].Gen)<<32 | uint64(i) }

// Find returns the slot with this id, 0 if it was released.
func (b *Table) Find(id uint64) uint32 {
	i := uint32(id)
	if int(i) >= len(b.Slots) || b.Slots[i].Gen != uint32(id>>32) || b.Slots[i].State == StateFree {
		return 0
	}
	return i
}

// Live reports whether operation id has not completed.
func (b *Table) Live(id uint64) bool {
	i := b.Find(id)
	return i != 0 && b.Slots[i].State == StateLive
}

// Recycle makes slot i free. Requests that refer to it report success from now on.
func (b *Table) Recycle(i uint32) {
	s := &b.Slots[i]
	b.Bufs[i] = nil
	s.Gen = NextGen(s.Gen)
	s.State = StateFree
	s.Next = b.FreeList
	b.FreeList = i
}

// NextGen returns the generation after g.
func NextGen(g uint32) uint32 { return (g + 2) & GenMask }

// ValidGen reports whether g can be a generation.
func ValidGen(g uint32) bool { return g&1 != 0 && g <= GenMask }

// Grow adds slots and returns the first free one.
//
//go:noinline
func (b *Table) Grow() uint32 {
	n := max(len(b.Slots), 1)
	k := max(startSlots, n/2)
	b.Slots = append(b.Slots, make([]Slot, n+k-len(b.Slots))...)
	b.Bufs = append(b.Bufs, make([][]byte, n+k-len(b.Bufs))...)
	for i := n + k - 1; i >= n; i-- {
		b.Slots[i].Gen = FirstGen
		b.Slots[i].Next = b.FreeList
		b.FreeList = uint32(i)
	}
	return b.FreeList
}

// AddUnclaimed keeps slot i, whose result may never be read, until maxUnclaimed others follow. It
// returns the slot that is not kept any more, 0 if there is none.
func (b *Table) AddUnclaimed(i uint32) (first uint32) {
	s := &b.Slots[i]
	if s.Flags&flagUnclaimed != 0 {
		return 0
	}
	s.Flags |= flagUnclaimed
	s.Next = 0
	if b.unclaimedTail == 0 {
		b.Unclaimed = i
	} else {
		b.Slots[b.unclaimedTail].Next = i
	}
	b.unclaimedTail = i
	if b.numUnclaimed++; b.numUnclaimed <= maxUnclaimed {
		return 0
	}
	first = b.Unclaimed
	b.RemoveUnclaimed(first)
	return first
}

// RemoveUnclaimed removes slot i from the unclaimed completions, if it is one of them.
func (b *Table) RemoveUnclaimed(i uint32) {
	s := &b.Slots[i]
	if s.Flags&flagUnclaimed == 0 {
		return
	}
	s.Flags &^= flagUnclaimed
	before := uint32(0)
	for k := b.Unclaimed; k != i; k = b.Slots[k].Next {
		before = k
	}
	if before == 0 {
		b.Unclaimed = s.Next
	} else {
		b.Slots[before].Next = s.Next
	}
	if b.unclaimedTail == i {
		b.unclaimedTail = before
	}
	b.numUnclaimed--
}

// Chain is a doubly linked queue of live slots, through Slot.Next and Slot.prev. A slot
// is in at most one chain.
type Chain struct{ Head, tail uint32 }

// Push adds slot i at the end of c.
func (b *Table) Push(c *Chain, i uint32) {
	s := &b.Slots[i]
	s.Next, s.prev = 0, c.tail
	if c.tail == 0 {
		c.Head = i
	} else {
		b.Slots[c.tail].Next = i
	}
	c.tail = i
}

// Unlink removes slot i from c, which contains it.
func (b *Table) Unlink(c *Chain, i uint32) {
	s := &b.Slots[i]
	if s.prev == 0 {
		c.Head = s.Next
	} else {
		b.Slots[s.prev].Next = s.Next
	}
	if s.Next == 0 {
		c.tail = s.prev
	} else {
		b.Slots[s.Next].prev = s.prev
	}
}

// The fast paths of receives leave the buffer of a completed operation in Table.Bufs:
// clearing it would slow down each of them. The slot's next operation overwrites it, or
// sweep clears it. sweep reaches every slot within sweepTime while the worker is
// progressed. All other paths clear the buffer themselves, when the operation completes. So no
// buffer stays referenced while the worker sleeps.

// sweepTime is the longest duration of a sweep over all slots.
const sweepTime = 500 * time.Millisecond

// sweep clears the buffers of completed operations in the next n slots.
func (b *Table) sweep(n int) {
	for range n {
		if b.swept++; int(b.swept) >= len(b.Slots) {
			b.swept = 1
		}
		if b.Slots[b.swept].State != StateLive && b.Bufs[b.swept] != nil {
			b.Bufs[b.swept] = nil
		}
	}
}

// Tidy sweeps the slots that are due since its last call. Progress passes call it.
func (b *Table) Tidy(now ucs.Time) {
	past := min(now.Sub(b.tidied), sweepTime)
	b.tidied = now
	due := len(b.Slots) * int(past/time.Microsecond) / int(sweepTime/time.Microsecond)
	b.sweep(min(max(16, due), len(b.Slots)))
}

// SweepAll sweeps all slots before the worker sleeps. If it did so a moment ago, it returns
// how long the worker may sleep until the next sweep is due. 0: without a bound.
func (b *Table) SweepAll(now ucs.Time) time.Duration {
	if wait := b.sweptAll.Add(sweepTime / 2).Sub(now); b.sweptAll != 0 && wait > 0 {
		return wait
	}
	b.sweptAll = now
	b.sweep(len(b.Slots))
	return 0
}

// Check is the result of checking an id that a peer sent. A peer may only name an
// operation that it was sent the id of. Anything else is a protocol violation.
type Check uint8

// Results of CheckID.
const (
	IDLive      Check = iota // an operation that has not completed
	IDCompleted              // an operation that has completed: the message crossed its completion
	IDUnknown                // no operation whose id any peer was sent
)

// CheckID classifies an id. It does not check which peer sent it.
func (b *Table) CheckID(id uint64) (uint32, Check) {
	i, gen := uint32(id), uint32(id>>32)
	if i == 0 || int(i) >= len(b.Slots) || !ValidGen(gen) {
		return 0, IDUnknown
	}
	s := &b.Slots[i]
	switch {
	case s.Gen != gen && (s.Gen-gen)&GenMask > GenMask/2:
		return 0, IDUnknown // a generation not reached yet
	case s.Gen != gen:
		return 0, IDCompleted
	case s.State == StateFree:
		return 0, IDUnknown // the slot was not used in this generation yet
	case s.State != StateLive:
		return 0, IDCompleted
	}
	return i, IDLive
}
