//go:build !race

package mapped

// An aligned eight-byte load or store is a single access on every 64-bit CPU that goucx
// supports. Ordering comes from RMA.Barrier, not from these functions.

func (rec *record) load8(addr uint64) uint64 { return *rec.word64(addr) }

func (rec *record) store8(addr uint64, v uint64) {
	*(*uint64)(pointer(addr + rec.delta)) = v
}
