//go:build race

package mapped

import (
	"encoding/binary"
	"sync/atomic"
)

// The race detector watches registered memory of the Go heap. A peer polls such
// a word atomically, so it is written atomically here.

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
