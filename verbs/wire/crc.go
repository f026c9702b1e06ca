package wire

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"runtime"
)

// A CRC is linear: what a change of some bytes does to the register depends on
// those bytes and on how many follow, and on nothing else. The register is a
// polynomial over GF(2) modulo CRC-32's, in reflected form (bit 31 is x^0), and a
// byte that passes multiplies it by x^8. So fields that change from packet to
// packet are looked up and added, not computed again, and a difference can be
// followed backwards to the bytes that caused it.

// ahead and behind hold x^(8·2^k) and its inverse, x^(-8·2^k): the way of 2^k
// bytes forward and back.
var (
	ahead  = squares(1 << (31 - 8))
	behind = squares(inverseOfX8())
)

func squares(p uint32) (t [17]uint32) {
	for k := range t {
		t[k] = p
		p = multModP(p, p)
	}
	return t
}

func inverseOfX8() uint32 {
	p := uint32(1) << 31 // 1
	for range 8 {
		if p>>31 != 0 {
			p = (p^crc32.IEEE)<<1 | 1
		} else {
			p <<= 1
		}
	}
	return p
}

// move gives the register after n zero bytes more, by way of one of the tables
// above. 0 ≤ n < 2^17.
func move(reg uint32, n int, by *[17]uint32) uint32 {
	for ; n != 0; n &= n - 1 {
		reg = multModP(reg, by[bits.TrailingZeros32(uint32(n))])
	}
	return reg
}

// multModP multiplies two polynomials modulo CRC-32's.
func multModP(a, b uint32) uint32 {
	var p uint32
	for range 32 {
		p ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return p
}

// effects is what a byte does to the register that has n bytes behind it.
func effects(n int) (t [256]uint32) {
	for b := 1; b < len(t); b++ {
		if b&(b-1) == 0 {
			t[b] = move(uint32(b), n+1, &ahead) // the register takes a byte at its low end
		} else {
			t[b] = t[b&(b-1)] ^ t[b&-b]
		}
	}
	return t
}

// field is what a big-endian number of 16 bits does to the register, by its
// high and its low byte.
type field [2][256]uint32

// newField makes the field that has n bytes behind it.
func newField(n int) *field { return &field{effects(n + 1), effects(n)} }

func (f *field) at(v uint16) uint32 { return f[0][v>>8] ^ f[1][v&0xff] }

// nextEffects are the effects of twelve bytes, the last one first.
var nextEffects = func() (t [12][256]uint32) {
	for k := range t {
		t[k] = effects(k)
	}
	return t
}()

// Update adds b to the checksum crc: what crc32.Update does with the IEEE table,
// in half of the time where b is short or ends short of a multiple of 16 bytes, as
// every packet does.
// hot: BenchmarkICRC
func Update(crc uint32, b []byte) uint32 {
	if runtime.GOARCH != "amd64" { // an instruction does it
		return crc32.Update(crc, crc32.IEEETable, b)
	}
	if len(b) < crcBulk {
		return updateShort(crc, b)
	}
	n := len(b) & 15
	return crc32.Update(updateShort(crc, b[:n]), crc32.IEEETable, b[n:])
}

// crcBulk is where crc32.Update begins to multiply without carries.
const crcBulk = 64

// updateShort is Update for few bytes. They may be memory that a program changes
// while an adapter reads it: the race detector does not look.
//
//go:norace
func updateShort(crc uint32, b []byte) uint32 {
	le, t := binary.LittleEndian, &nextEffects
	crc = ^crc
	for ; len(b) >= 12; b = b[12:] { // a packet's number and eight bytes behind
		v, w := le.Uint64(b)^uint64(crc), le.Uint32(b[8:])
		crc = t[11][byte(v)] ^ t[10][byte(v>>8)] ^ t[9][byte(v>>16)] ^ t[8][byte(v>>24)] ^
			t[7][byte(v>>32)] ^ t[6][byte(v>>40)] ^ t[5][byte(v>>48)] ^ t[4][byte(v>>56)] ^
			t[3][byte(w)] ^ t[2][byte(w>>8)] ^ t[1][byte(w>>16)] ^ t[0][byte(w>>24)]
	}
	if len(b) >= 8 {
		v := le.Uint64(b) ^ uint64(crc)
		crc = t[7][byte(v)] ^ t[6][byte(v>>8)] ^ t[5][byte(v>>16)] ^ t[4][byte(v>>24)] ^
			t[3][byte(v>>32)] ^ t[2][byte(v>>40)] ^ t[1][byte(v>>48)] ^ t[0][byte(v>>56)]
		b = b[8:]
	}
	if len(b) >= 4 {
		v := le.Uint32(b) ^ crc
		crc = t[3][byte(v)] ^ t[2][byte(v>>8)] ^ t[1][byte(v>>16)] ^ t[0][byte(v>>24)]
		b = b[4:]
	}
	for _, v := range b {
		crc = t[0][byte(crc)^v] ^ crc>>8
	}
	return ^crc
}
