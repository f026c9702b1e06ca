package mapped

import (
	"sync/atomic"
	"unsafe"

	"github.com/goucx/goucx/uct"
)

// Permissions of a record, and the kind of its memory. The first three have the values of the
// flags in uct.MemFlags.
const (
	permPut    = uint32(uct.MemRemotePut)
	permGet    = uint32(uct.MemRemoteGet)
	permAtomic = uint32(uct.MemRemoteAtomic)
	permFlags  = permPut | permGet | permAtomic

	// The same for direct memory of at least eight bytes: an eight-byte access needs one test
	// instead of three.
	fastGet    = permGet << 3
	fastAtomic = permAtomic << 3

	isCounted = 1 << 6
	isCopied  = 1 << 7
)

// record is an unpacked key: one cache line outside the Go heap. It is written before its RKey
// is returned, and read-only until the key is released.
//
// slot lies outside the Go heap, too, so the collector need not see it.
type record struct {
	base   uint64 // the region's first address in its owner
	last8  uint64 // last offset of an eight-byte access; used only with a fast permission
	slot   *Slot
	gen    uint64 // expected generation of the slot
	delta  uint64 // added to an owner's address, yields an address of this process
	size   uint64
	perm   uint32
	copier uint32 // index into Keys.copiers
	put8   uint64 // number of offsets at which an eight-byte put is direct; 0: none
}

const recordBytes = 64

// recordAt returns the record of a key. The memory behind an RKey is outside the Go heap and mapped
// while its domain is open. The collector ignores such pointers, so no rule of package unsafe
// is violated.
func recordAt(k uct.RKey) *record { return (*record)(pointer(uint64(k))) }

// pointer converts an address to a pointer. The memory must be outside the Go heap, or pinned.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// address returns the address of b's first byte. b must not be empty. If the address is stored,
// b must be pinned or outside the Go heap.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

// recordIn returns record i of a chunk. The chunk is mapped and page-aligned.
func recordIn(chunk []byte, i int) *record {
	return (*record)(unsafe.Pointer(&chunk[i*recordBytes : (i+1)*recordBytes][0]))
}

func (rec *record) key() uct.RKey { return uct.RKey(uintptr(unsafe.Pointer(rec))) }

// bytes returns memory of the region. The caller has checked the range.
func (rec *record) bytes(addr, n uint64) []byte {
	return unsafe.Slice((*byte)(pointer(addr+rec.delta)), n)
}

// word32 and word64 return pointers to words of the region. The caller has checked range and
// alignment.
func (rec *record) word32(addr uint64) *uint32 { return (*uint32)(pointer(addr + rec.delta)) }
func (rec *record) word64(addr uint64) *uint64 { return (*uint64)(pointer(addr + rec.delta)) }

// Slot is the state of a region that its owner shares with all holders of a key. It is one
// cache line of a Table.
type Slot struct {
	gen   atomic.Uint64 // 0: no region, or a revoked one
	inUse atomic.Uint64 // accesses in flight to counted memory
	_     [48]byte
}

// SlotBytes is the size of a slot in a table.
const SlotBytes = 64

// SlotAt returns slot i of a table, or nil if the table is shorter. The table must be mapped,
// outside the Go heap and page-aligned.
func SlotAt(table []byte, i uint32) *Slot {
	if uint64(i) >= uint64(len(table)/SlotBytes) {
		return nil
	}
	return (*Slot)(unsafe.Pointer(&table[uint64(i)*SlotBytes]))
}

// noescape hides b from escape analysis. This is sound if the callee keeps no reference to b after
// it returns, as Copier guarantees. b's stack cannot move between the two conversions, because
// there is no call between them.
func noescape(b []byte) []byte {
	return unsafe.Slice((*byte)(pointer(uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))))), len(b))
}
