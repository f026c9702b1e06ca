package mapped

import (
	"sync/atomic"
	"unsafe"

	"github.com/goucx/goucx/uct"
)

// What a record permits, and of which kind its memory is. The first three are
// the region's flags as they stand in uct.MemFlags.
const (
	permPut    = uint32(uct.MemRemotePut)
	permGet    = uint32(uct.MemRemoteGet)
	permAtomic = uint32(uct.MemRemoteAtomic)
	permFlags  = permPut | permGet | permAtomic

	// The same for direct memory of at least eight bytes: one test instead of
	// three on the path of an eight-byte access.
	fastGet    = permGet << 3
	fastAtomic = permAtomic << 3

	isCounted = 1 << 6
	isFar     = 1 << 7
)

// record is an unpacked key: one cache line outside the Go heap, written before
// its RKey is handed out and read-only until the key is released.
//
// slot lies outside the Go heap too, so the collector need not see it.
type record struct {
	base  uint64 // the region's first address at its owner
	last8 uint64 // the last offset of an eight-byte access; with a fast permission only
	slot  *Slot
	gen   uint64 // what the slot's generation must be
	delta uint64 // what makes an owner's address one of this process
	size  uint64
	perm  uint32
	far   uint32 // index into Keys.far
	put8  uint64 // number of offsets at which an eight-byte put is direct; 0: none
}

const recordBytes = 64

// at finds the record of a key. The memory behind an RKey is mapped outside the
// Go heap for as long as its domain lives, so no rule of package unsafe is at
// stake: the collector ignores such pointers.
func at(k uct.RKey) *record { return (*record)(pointer(uint64(k))) }

// pointer makes an address a pointer, of memory outside the Go heap or pinned.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// address is the first byte's; b must not be empty, and pinned or outside the
// Go heap where the number is kept.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

// recordIn gives record i of a chunk, whose memory is mapped and page-aligned.
func recordIn(chunk []byte, i int) *record {
	return (*record)(unsafe.Pointer(&chunk[i*recordBytes : (i+1)*recordBytes][0]))
}

func (rec *record) key() uct.RKey { return uct.RKey(uintptr(unsafe.Pointer(rec))) }

// bytes is memory of the region. The caller has checked the range.
func (rec *record) bytes(addr, n uint64) []byte {
	return unsafe.Slice((*byte)(pointer(addr+rec.delta)), n)
}

// word32 and word64 are words of the region. The caller has checked range and
// alignment.
func (rec *record) word32(addr uint64) *uint32 { return (*uint32)(pointer(addr + rec.delta)) }
func (rec *record) word64(addr uint64) *uint64 { return (*uint64)(pointer(addr + rec.delta)) }

// Slot is the word of a region that its owner and everybody who holds a key of
// it share: one cache line of a Table.
type Slot struct {
	gen   atomic.Uint64 // 0: no region, or a revoked one
	inUse atomic.Uint64 // accesses under way to memory that Close gives back
	_     [48]byte
}

// SlotBytes is the size of a slot in a table.
const SlotBytes = 64

// SlotAt gives slot i of a table, whose memory must be mapped (not on the Go
// heap) and page-aligned; nil when the table is shorter.
func SlotAt(table []byte, i uint32) *Slot {
	if uint64(i) >= uint64(len(table)/SlotBytes) {
		return nil
	}
	return (*Slot)(unsafe.Pointer(&table[uint64(i)*SlotBytes]))
}

// hide keeps b out of escape analysis. Sound where the callee keeps no
// reference to b after it returned, as Far promises. Nothing can move b's stack
// between the two conversions: there is no call between them.
func hide(b []byte) []byte {
	return unsafe.Slice((*byte)(pointer(uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))))), len(b))
}
