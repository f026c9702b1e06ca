package ucp

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// goldenKey is the key in docs/wire/key.md.
var goldenKey = keyView{
	base:   0x7f0011223344,
	len:    4096,
	access: uct.MemRemote,
	owner: wireup.ContextID{
		Process: uct.UUID{0xb0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, Context: 3,
	},
	entries: []keyEntry{
		{transport: uct.TransportSelf, key: []byte("self key")},
		{transport: uct.TransportShm, domain: 1, key: []byte("shm")},
	},
}

const goldenKeyHex = "4758524b" + "02" + "00" + "4900" +
	"4433221100" + "7f0000" + "0010000000000000" + "07000000" +
	"b00102030405060708090a0b0c0d0e0f" + "03000000" +
	"0100" + "00" + "0800" + "73656c66206b6579" +
	"0200" + "01" + "0300" + "73686d" +
	"6671d28c"

func packKey(t testing.TB, v keyView) []byte {
	b, err := v.append(nil)
	require.NoError(t, err)
	return b
}

// resealKey repairs the length and the checksum of a damaged key.
func resealKey(b []byte) []byte {
	b = bytes.Clone(b)
	binary.LittleEndian.PutUint16(b[keyOffLength:], uint16(len(b)))
	binary.LittleEndian.PutUint32(b[len(b)-keyCRCLen:], crc32.Checksum(b[:len(b)-keyCRCLen], castagnoli))
	return b
}

func TestKeyGolden(t *testing.T) {
	b := packKey(t, goldenKey)
	assert.Equal(t, goldenKeyHex, hex.EncodeToString(b))
	v, err := parseKey(b)
	require.NoError(t, err)
	assert.Equal(t, goldenKey, v)
	assert.Equal(t, "key to 4096 bytes at 0x7f0011223344 of context 3 of process b0010203", Key(b).String())
}

func TestKeyTruncatedAtEveryByte(t *testing.T) {
	b := packKey(t, goldenKey)
	first := keyHeaderLen + keyEntryHeaderLen + len("self key") + keyCRCLen
	for n := range b {
		_, err := parseKey(b[:n])
		require.ErrorIs(t, err, ErrInvalid, "cut at %d", n)
		if n >= keyHeaderLen+keyCRCLen {
			_, err = parseKey(resealKey(b[:n]))
			assert.Equal(t, n == keyHeaderLen+keyCRCLen || n == first, err == nil, "resealed at %d: only whole entries may remain", n)
		}
	}
	_, err := parseKey(append(b, 0))
	require.ErrorIs(t, err, errKey)
}

func TestKeyEveryBitFlip(t *testing.T) {
	b := packKey(t, goldenKey)
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		_, err := parseKey(b)
		require.ErrorIs(t, err, errKey, "bit %d", i)
		b[i/8] ^= 1 << (i % 8)
	}
}

func TestKeyRefusalsByName(t *testing.T) {
	set := func(at int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[at:], v); return resealKey(b) }
	}
	for _, c := range []struct {
		name   string
		damage func([]byte) []byte
		says   string
	}{
		{"empty", func([]byte) []byte { return nil }, "0 bytes, at least 52"},
		{"magic", set(0, 'U'), `starts with "UXRK"`},
		{"version", set(keyOffVersion, 3), "version 3, this program knows 2"},
		{"a key without its owner", set(keyOffVersion, 1), "version 1, this program knows 2"},
		{"flags", set(keyOffFlags, 0x82), "unknown flags 0x82"},
		{"too long", func(b []byte) []byte { return resealKey(append(b, make([]byte, maxKeyLen)...)) }, "at most 2048"},
		{"checksum", func(b []byte) []byte { b[keyOffBase]++; return b }, "damaged"},
		{"range", set(keyOffLen, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "pass the end of the address space"},
		{"entry beyond the end", set(keyHeaderLen+3, 0xff), "an entry of 260 bytes, 21 left"},
		{"rest too short", set(keyHeaderLen+3, 12), "4 bytes left for an entry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseKey(c.damage(packKey(t, goldenKey)))
			require.ErrorIs(t, err, ErrInvalid)
			assert.ErrorContains(t, err, c.says)
		})
	}
}

func TestKeyTooManyDomains(t *testing.T) {
	v := goldenKey
	v.entries = make([]keyEntry, 500)
	b, err := v.append([]byte("x"))
	require.ErrorIs(t, err, ErrTooLong)
	assert.Equal(t, "x", string(b))
}

func FuzzParseKey(f *testing.F) {
	f.Add(packKey(f, goldenKey), false)
	f.Add(packKey(f, keyView{}), true)
	f.Fuzz(func(t *testing.T, b []byte, repair bool) {
		if repair && len(b) >= keyHeaderLen+keyCRCLen && len(b) <= maxKeyLen {
			copy(b, keyMagic+"\x02\x00")
			b = resealKey(b)
		}
		v, err := parseKey(b)
		if err != nil {
			require.ErrorIs(t, err, errKey)
			return
		}
		assert.Equal(t, b, packKey(t, v))
	})
}
