package mapped

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/ucs/protocol/protocoltest"
	"github.com/goucx/goucx/uct"
)

func sample() PackedKey {
	return PackedKey{
		Kind: Registered, Flags: uct.MemRemotePut | uct.MemRemoteGet, Domain: uct.UUID{1, 2, 3, 15: 16},
		Slot: 0x01020304, PID: 4711, Gen: 0x1122334455667788, Base: 0x7f0000001000, Len: 4096, Socket: "@goucx-key-x",
	}
}

func TestPackedGolden(t *testing.T) {
	p := sample()
	b := p.Append([]byte("before"))
	require.Equal(t, "before", string(b[:6]))
	assert.Len(t, b[6:], KeyLen(len(p.Socket)))
	protocoltest.Run(t, protocoltest.Golden{
		Format: &keyFormat, File: "key", Version: keyOffVersion, Features: keyOffFeatures,
		Bytes: b[6:], Want: p,
		Seal: func(b []byte) []byte {
			body := b[:max(len(b)-keySumLen, 0)]
			return binary.LittleEndian.AppendUint32(body, crc32.Checksum(body, castagnoli))
		},
		Decode: func(b []byte) (any, error) {
			var q PackedKey
			err := q.Parse(b)
			return q, err
		},
	})
	assert.Contains(t, p.String(), "registered region of 4096 bytes at 0x7f0000001000 of process 4711")
}

func TestPackedLimits(t *testing.T) {
	p := sample()
	p.Socket = strings.Repeat("n", MaxSocket)
	b := p.Append(nil)
	assert.Len(t, b, MaxKey)
	var q PackedKey
	require.NoError(t, q.Parse(b))
	p.Socket += "n"
	assert.ErrorIs(t, q.Parse(p.Append(nil)), ErrKey)
}

func TestPackedDamage(t *testing.T) {
	p := sample()
	b := p.Append(nil)
	var q PackedKey
	for i := range b {
		assert.ErrorIs(t, q.Parse(b[:i]), ErrKey, "cut at %d", i)
	}
	assert.ErrorIs(t, q.Parse(append(b[:len(b):len(b)], 0)), ErrKey, "one more")
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		assert.ErrorIs(t, q.Parse(b), ErrKey, "bit %d", i)
		b[i/8] ^= 1 << (i % 8)
	}
	require.NoError(t, q.Parse(b))
}

// TestPackedNonsense: fields that no owner packs, with a right checksum.
func TestPackedNonsense(t *testing.T) {
	for name, change := range map[string]func(*PackedKey){
		"kind 0":       func(p *PackedKey) { p.Kind = 0 },
		"kind 3":       func(p *PackedKey) { p.Kind = 3 },
		"flags":        func(p *PackedKey) { p.Flags = 8 },
		"generation":   func(p *PackedKey) { p.Gen = 0 },
		"empty":        func(p *PackedKey) { p.Len = 0 },
		"huge":         func(p *PackedKey) { p.Len = 1 << 63 },
		"wraps around": func(p *PackedKey) { p.Base = ^uint64(4094) },
	} {
		p := sample()
		change(&p)
		var q PackedKey
		assert.ErrorIs(t, q.Parse(p.Append(nil)), ErrKey, name)
	}
}

func FuzzPackedKey(f *testing.F) {
	p := sample()
	f.Add(p.Append(nil), false)
	f.Add(p.Append(nil)[:60], true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if fix && len(b) >= keyFixedLen+keySumLen { // past the checksum, at the fields
			body := b[: len(b)-keySumLen : len(b)-keySumLen]
			sum := crc32.Checksum(body, castagnoli)
			b = append(body, byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
		}
		var q PackedKey
		if q.Parse(b) != nil {
			return
		}
		if b[keyOffFeatures]&^byte(protocol.Required) == 0 {
			assert.Equal(t, b, q.Append(nil))
		}
		var again PackedKey
		assert.NoError(t, again.Parse(q.Append(nil)))
		assert.Equal(t, q, again)
		assert.NotEmpty(t, q.String())
	})
}
