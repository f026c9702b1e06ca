package wire

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/uct"
)

// The bytes of docs/wire/ucp.md.
func TestGolden(t *testing.T) {
	rts := make([]byte, RTSLen)
	PutRTS(rts, 0x0000000700000003, 1<<20)
	assert.Equal(t, "0300000007000000"+"0000100000000000", hex.EncodeToString(rts))

	b := make([]byte, AtomicLen)
	Atomic{Key: 1, ID: 2, Operand: 3, Compare: 4, Op: uct.AtomicCompareSwap, Width: 8}.Put(b)
	assert.Equal(t, "0100000000000000"+"0200000000000000"+"0300000000000000"+"0400000000000000"+"0508", hex.EncodeToString(b))

	word := UserWord(0x1234, 5, true)
	assert.EqualValues(t, 0x1_0005_1234, word)
	assert.Equal(t, 5, WordHeaderLen(word))
	assert.Zero(t, word&^WordMask)
}

// What is parsed packs to the same bytes.
func FuzzCodecs(f *testing.F) {
	f.Add(make([]byte, AtomicLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= RTSLen {
			got := make([]byte, RTSLen)
			id, n := ParseRTS(b)
			PutRTS(got, id, n)
			assert.Equal(t, b[:RTSLen], got)
		}
		if len(b) >= AtomicLen {
			got := make([]byte, AtomicLen)
			ParseAtomic(b).Put(got)
			assert.Equal(t, b[:AtomicLen], got)
		}
	})
}
