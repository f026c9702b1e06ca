package keycodec

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/ucs/protocol/protocoltest"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// golden is the key in docs/wire/key.md.
var golden = View{
	Base:   0x7f0011223344,
	Len:    4096,
	Access: uct.MemRemote,
	Owner: wireup.ContextID{
		Process: uct.UUID{0xb0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, Context: 3,
	},
	Entries: []Entry{
		{Transport: uct.TransportSelf, Key: []byte("self key")},
		{Transport: uct.TransportShm, Domain: 1, Key: []byte("shm")},
	},
}

func pack(t testing.TB, v View) []byte {
	b, err := v.Append(nil)
	require.NoError(t, err)
	return b
}

// reseal repairs the length and the checksum of a damaged key.
func reseal(b []byte) []byte {
	b = bytes.Clone(b)
	binary.LittleEndian.PutUint16(b[offLength:], uint16(len(b)))
	binary.LittleEndian.PutUint32(b[len(b)-crcLen:], crc32.Checksum(b[:len(b)-crcLen], castagnoli))
	return b
}

func TestGolden(t *testing.T) {
	protocoltest.Run(t, protocoltest.Golden{
		Format: &format, File: "key", Version: offVersion, Features: offFeatures,
		Bytes: pack(t, golden), Want: golden, Seal: reseal,
		Decode: func(b []byte) (any, error) {
			v, err := Parse(b)
			v.Features &= protocol.Required
			return v, err
		},
	})
}

func TestTruncatedAtEveryByte(t *testing.T) {
	b := pack(t, golden)
	first := headerLen + entryHeaderLen + len("self key") + crcLen
	for n := range b {
		_, err := Parse(b[:n])
		require.ErrorIs(t, err, ucs.ErrInvalid, "cut at %d", n)
		if n >= headerLen+crcLen {
			_, err = Parse(reseal(b[:n]))
			assert.Equal(t, n == headerLen+crcLen || n == first, err == nil, "resealed at %d: only whole entries may remain", n)
		}
	}
	_, err := Parse(append(b, 0))
	require.ErrorIs(t, err, errMalformed)
}

func TestEveryBitFlip(t *testing.T) {
	b := pack(t, golden)
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		_, err := Parse(b)
		require.ErrorIs(t, err, errMalformed, "bit %d", i)
		b[i/8] ^= 1 << (i % 8)
	}
}

func TestRefusalsByName(t *testing.T) {
	set := func(at int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[at:], v); return reseal(b) }
	}
	for _, c := range []struct {
		Name   string
		Damage func([]byte) []byte
		Says   string
	}{
		{"empty", func([]byte) []byte { return nil }, "0 bytes, at least 52"},
		{"magic", set(0, 'U'), `starts with "UXRK"`},
		{"too long", func(b []byte) []byte { return reseal(append(b, make([]byte, MaxLen)...)) }, "at most 2048"},
		{"checksum", func(b []byte) []byte { b[offBase]++; return b }, "damaged"},
		{"range", set(offLen, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "pass the end of the address space"},
		{"entry beyond the end", set(headerLen+3, 0xff), "an entry of 260 bytes, 21 left"},
		{"rest too short", set(headerLen+3, 12), "4 bytes left for an entry"},
	} {
		t.Run(c.Name, func(t *testing.T) {
			_, err := Parse(c.Damage(pack(t, golden)))
			require.ErrorIs(t, err, ucs.ErrInvalid)
			assert.ErrorContains(t, err, c.Says)
		})
	}
}

func TestTooManyDomains(t *testing.T) {
	v := golden
	v.Entries = make([]Entry, 500)
	b, err := v.Append([]byte("x"))
	require.ErrorIs(t, err, ucs.ErrTooLong)
	assert.Equal(t, "x", string(b))
}

func FuzzParse(f *testing.F) {
	f.Add(pack(f, golden), false)
	f.Add(pack(f, View{}), true)
	f.Fuzz(func(t *testing.T, b []byte, repair bool) {
		if repair && len(b) >= headerLen+crcLen && len(b) <= MaxLen {
			copy(b, magic+"\x02")
			b = reseal(b)
		}
		v, err := Parse(b)
		if err != nil {
			require.ErrorIs(t, err, errMalformed)
			return
		}
		assert.Equal(t, b, pack(t, v))
	})
}
