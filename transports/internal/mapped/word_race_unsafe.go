//go:build race

package mapped

import (
	"encoding/binary"
	"sync/atomic"
)

// The race detector tracks registered memory in the Go heap. A peer may poll an aligned word
// atomically, so these functions access it atomically.

func (rec *record) load8(addr uint64) uint64 {
	if addr&7 == 0 {
		return atomic.LoadUint64(rec.word64(addr))
	}
	return binary.LittleEndian.Uint64(rec.bytes(addr, 8))
}

func (rec *record) store8(addr, v uint64) {
	if addr&7 == 0 {
		atomic.StoreUint64(rec.word64(addr), v)
		return
	}
	binary.LittleEndian.PutUint64(rec.bytes(addr, 8), v)
}
