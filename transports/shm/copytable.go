package shm

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/shmem"
)

// Copies: a long message is copied once, from the sender's memory to the buffer of the receive. A copy
// table has an entry for each message that its owner exposes to one peer. The owner makes it at the
// connection's first exposure, and sends it in COPY_TABLE; the peer maps it and writes into it too:
//
//	0    reserved
//	256  entries, 128 bytes each
//
// A message is copied in pieces of pieceSize bytes. Before a copy of a piece, it is claimed: claimPiece
// increments the entry's state word by compare-and-swap. So each piece is copied once, and no piece is
// begun after the exposure was withdrawn.
//
//	          Expose               Fetch                 last piece
//	entryFree ------> entryExposed -----> entryCopying --------------> entryCopied
//	                       |                   |                            |
//	                       +---- Withdraw -----+------- Withdraw -----------+--> entryFree
//
// Each step is one compare-and-swap or, where only the owner writes, a store. The owner fills in the
// entry before entryExposed. The peer reads it after it has seen entryExposed.
const (
	copyTableSize = 16384
	entriesOffset = 256
	entrySize     = 128
	numEntries    = (copyTableSize - entriesOffset) / entrySize
	// entryProbes is the number of entries in which an exposure may be: an id's slot, and those behind it.
	entryProbes = 8
	pieceSize   = 32 << 10
)

// copyEntry is an entry, in memory that two processes map.
type copyEntry struct {
	// Written by the owner.
	id           uint64
	addr, length uint64
	_            [40]byte
	// state is a copyState.
	state atomic.Uint64
	_     [56]byte
}

// copyState is the state word of an entry: the generation of the exposure's id, the step, and the
// number of pieces that were claimed.
//
//	63..34 generation | 33..32 step | 31..0 pieces
type copyState uint64

const (
	entryFree    copyState = iota << 32
	entryExposed           // the peer may begin to copy
	entryCopying           // pieces are being copied
	entryCopied            // all pieces were copied
	stepMask     = entryCopied
)

// generation returns the copyState entryFree of an id's generation.
func generation(id uint64) copyState { return copyState(id >> 32 << 34) }

// step returns one of the constants.
func (s copyState) step() copyState { return s & stepMask }

// pieces returns the number of claimed pieces.
func (s copyState) pieces() uint64 { return uint64(uint32(s)) }

// belongs reports whether s is a state of exposure id.
func (s copyState) belongs(id uint64) bool {
	return s>>34 == generation(id)>>34 && s.step() != entryFree
}

// load returns the state.
func (c *copyEntry) load() copyState { return copyState(c.state.Load()) }

// change replaces state old by s. It reports whether the state was old.
func (c *copyEntry) change(old, s copyState) bool {
	return c.state.CompareAndSwap(uint64(old), uint64(s))
}

// copyTable is a copy table of this side or of the peer.
type copyTable struct{ seg *shmem.Segment }

// entry returns the k-th entry in which exposure id may be.
func (t *copyTable) entry(id uint64, k int) *copyEntry {
	return entryAt(t.seg.Bytes(), (int(uint32(id))+k)%numEntries)
}

// find returns the entry of exposure id, or nil.
func (t *copyTable) find(id uint64) *copyEntry {
	for k := range entryProbes {
		if c := t.entry(id, k); c.load().belongs(id) && c.id == id {
			return c
		}
	}
	return nil
}

// free returns a free entry for exposure id, or nil.
func (t *copyTable) free(id uint64) *copyEntry {
	for k := range entryProbes {
		if c := t.entry(id, k); c.load().step() == entryFree {
			return c
		}
	}
	return nil
}
