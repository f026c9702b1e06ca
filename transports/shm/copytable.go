package shm

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/shmem"
)

// Copies: a long message is copied once, from the sender's memory to the buffer of the receive. A copy
// table has an entry for each message that its owner exposes to one peer. The owner makes it at the
// connection's first exposure, and sends it in COPY_TABLE; the peer, which fetches the messages, maps it and
// writes into it too:
//
//	0    active: index + 1 of the entry of which the peer copies pieces
//	8    reads: 1 if the peer has read probe with process_vm_readv
//	16   probe: the address of probe in the owner's process
//	256  entries, 128 bytes each
//
// Both sides copy, in pieces of pieceSize bytes: the peer reads from the owner's memory, and the owner, if it
// polls meanwhile, writes to the peer's. Before a copy of a piece, it is claimed: a count in the entry's state
// word is incremented by compare-and-swap. So each piece is copied once, and none is begun after the exposure was
// withdrawn or the fetch canceled. The peer claims from the front and the owner from the back, so that a buffer that
// is used again has the same lines in the same core's cache.
//
//	          Expose               Fetch                 last piece
//	entryFree ------> entryExposed -----> entryCopying --------------> entryCopied --> Fetched, Expose: entryExposed
//	                       |                   |                            |
//	                       +---- Withdraw -----+------- Withdraw -----------+--> entryFree
//	                                           +------- CancelFetch ------------> entryFree
//
// Each step is one compare-and-swap or, where only the owner writes, a store. The owner fills in its part of the
// entry before entryExposed, and the peer its part before entryCopying.
const (
	copyTableSize = 16384
	probeOffset   = 16
	entriesOffset = 256
	entrySize     = 128
	numEntries    = (copyTableSize - entriesOffset) / entrySize
	// entryProbes is the number of entries in which an exposure may be: an id's slot, and those behind it.
	entryProbes = 8
	pieceSize   = 32 << 10
)

// copyEntry is an entry, in memory that two processes map. A message of one piece needs its first line alone.
type copyEntry struct {
	// Written by the owner.
	id           uint64
	addr, length uint64
	src          regionRef     // that holds the message
	state        atomic.Uint64 // a copyState
	// done is the number of pieces that the owner has copied since the table exists; failed is the last id of
	// which it could not copy a piece.
	done, failed atomic.Uint64
	// Written by the peer: the buffer, the number of bytes to copy, and the address of its guard page, see copies.guard.
	dst, want, guard uint64
	dstRegion        regionRef // that holds the buffer
	_                [24]byte
}

// regionRef names a region of its owner's domain that both sides map, see COPY_REGION: the slot in the domain's key
// table, and its generation. The zero value names none.
type regionRef struct {
	slot uint32
	_    uint32
	gen  uint64
}

// copyState is the state word of an entry: the low bits of the generation of the exposure's id, the step, and the
// numbers of pieces that each side has claimed.
//
//	63..40 generation | 39..38 step | 37..19 owner's pieces | 18..0 peer's pieces
type copyState uint64

const (
	pieceBits = 19
	maxPieces = 1<<pieceBits - 1 // of an exposure

	peersPiece  copyState = 1
	ownersPiece copyState = 1 << pieceBits

	stepShift       = 2 * pieceBits
	generationShift = stepShift + 2
)

const (
	entryFree    copyState = iota << stepShift
	entryExposed           // the peer may begin to copy
	entryCopying           // pieces are being copied
	entryCopied            // all pieces were copied
	stepMask     = entryCopied
)

// generation returns the copyState entryFree of an id's generation.
func generation(id uint64) copyState { return copyState(id >> 32 << generationShift) }

// step returns one of the constants.
func (s copyState) step() copyState { return s & stepMask }

// peers and owners return the number of pieces that a side has claimed, and pieces that of both.
func (s copyState) peers() uint64  { return uint64(s & maxPieces) }
func (s copyState) owners() uint64 { return uint64(s >> pieceBits & maxPieces) }
func (s copyState) pieces() uint64 { return s.peers() + s.owners() }

// belongs reports whether s is a state of exposure id.
func (s copyState) belongs(id uint64) bool {
	return s>>generationShift == generation(id)>>generationShift && s.step() != entryFree
}

// piecesOf returns the number of pieces of n bytes.
func piecesOf(n uint64) uint64 { return (n + pieceSize - 1) / pieceSize }

// maxRun is the number of pieces that a system call copies at most, so that a pass ends in some 10 us.
const maxRun = 8

// runOf returns the number of adjacent pieces that a side claims for a system call: up to its half of total, and half of
// what is left thereafter. A call takes about 1 us in addition to its copy, and both sides shall end at the same time.
func runOf(total, own, left uint64) uint64 {
	if half := (total + 1) / 2; own < half {
		return min(half-own, left, maxRun)
	}
	return min((left+1)/2, maxRun)
}

// load returns the state.
func (c *copyEntry) load() copyState { return copyState(c.state.Load()) }

// change replaces state old by s. It reports whether the state was old.
func (c *copyEntry) change(old, s copyState) bool {
	return c.state.CompareAndSwap(uint64(old), uint64(s))
}

// copyTable is a copy table of this side or of the peer.
type copyTable struct{ seg *shmem.Segment }

// index returns the index of the k-th entry in which exposure id may be.
func index(id uint64, k int) int { return (int(uint32(id)) + k) % numEntries }

// at returns entry i.
func (t *copyTable) at(i int) *copyEntry { return entryAt(t.seg.Bytes(), i) }

// active returns the table's word active.
func (t *copyTable) active() *atomic.Uint64 { return tableWord(t.seg.Bytes(), 0) }

// reads and probe return the table's words of that name.
func (t *copyTable) reads() *atomic.Uint64 { return tableWord(t.seg.Bytes(), 1) }
func (t *copyTable) probe() *atomic.Uint64 { return tableWord(t.seg.Bytes(), 2) }

// find returns the index of the entry of exposure id, -1 if there is none.
func (t *copyTable) find(id uint64) int {
	for k := range entryProbes {
		i := index(id, k)
		if c := t.at(i); c.load().belongs(id) && c.id == id {
			return i
		}
	}
	return -1
}
