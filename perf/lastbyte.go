package perf

import (
	"encoding/binary"
	"sync/atomic"
)

// lastByte is the last byte of a message in memory that the other side writes. It is read as part
// of its word, so that one loop serves messages of any length.
type lastByte struct {
	word  *atomic.Uint64
	shift uint
}

// newLastByte returns byte size-1 of b. b begins at a word boundary and consists of whole words.
func newLastByte(b []byte, size int64) lastByte {
	i := int(size - 1)
	shift := uint(i&7) * 8
	if nativeBig {
		shift = 56 - shift
	}
	return lastByte{word64(b, i&^7), shift}
}

// is reports whether the byte is v.
func (l lastByte) is(v byte) bool { return byte(l.word.Load()>>l.shift) == v }

// nativeBig reports whether this machine is big-endian.
var nativeBig = binary.NativeEndian.Uint16([]byte{1, 0}) != 1

// padded returns size rounded up to whole words, at least one.
func padded(size int64) int { return int(max(size+7, 8)) &^ 7 }
