//go:build !race

package mapped

// An aligned eight-byte load or store is one access on every 64-bit CPU that
// goucx runs on. Ordering comes from RMA.Barrier, not from here.

func (rec *record) load8(addr uint64) uint64     { return *rec.word64(addr) }
func (rec *record) store8(addr uint64, v uint64) { *rec.word64(addr) = v }
