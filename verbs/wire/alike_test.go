package wire

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAlike: it says what the Prefix says, whichever packets come one after the
// other.
func TestAlike(t *testing.T) {
	h := [...]Network{
		flow("10.0.0.2:4791", "10.0.0.1:4791", 0), flow("10.0.0.3:4791", "10.0.0.1:4791", 0),
		flow("[fd00::1]:40000", "[fd00::2]:4791", 0),
	}
	r := rand.New(rand.NewPCG(1, 2))
	var a, c ICRCCache
	b := make([]byte, 20)
	for range 20_000 {
		p := prefixOf(&h[r.IntN(len(h)*8)%len(h)])
		switch r.IntN(8) {
		case 0:
			b = make([]byte, BTHLen+ICRCLen+r.IntN(100))
			fallthrough
		case 1:
			b[r.IntN(cachedLen)] = byte(r.Uint32())
		}
		for i := range b[cachedLen:] {
			b[cachedLen+i] = byte(r.Uint32())
		}
		id := uint16(r.IntN(64))
		if r.IntN(8) == 0 {
			id = uint16(r.Uint32())
		}
		a.Seal(p, b, id)
		require.Equal(t, p.ICRC(b[:len(b)-ICRCLen], id), binary.LittleEndian.Uint32(b[len(b)-ICRCLen:]))
		require.True(t, c.Valid(p, b, id))
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		_, right := p.Check(b, id)
		require.Equal(t, right && p.ICRC(b[:len(b)-ICRCLen], id) == binary.LittleEndian.Uint32(b[len(b)-ICRCLen:]), c.Valid(p, b, id))
	}
}
