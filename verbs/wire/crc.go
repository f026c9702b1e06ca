package wire

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"runtime"
)

// A CRC is linear: how a change of some bytes affects the register depends only on
// those bytes and on how many bytes follow. The register is a polynomial over GF(2)
// modulo that of CRC-32, in reflected form (bit 31 is x^0). Each processed byte
// multiplies it by x^8. So the effect of a field that changes from packet to packet is
// looked up and added. And a difference of two checksums can be traced back to the
// bytes that caused it.

// ahead and behind hold x^(8·2^k) and its inverse, x^(-8·2^k): they move the register
// forward and back by 2^k bytes.
var (
	forward  = squares(1 << (31 - 8))
	backward = squares(inverseOfX8())
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

// shift returns the register after n more zero bytes (by = ahead), or before n zero
// bytes (by = behind). 0 ≤ n < 2^17.
func shift(reg uint32, n int, by *[17]uint32) uint32 {
	for ; n != 0; n &= n - 1 {
		reg = multModP(reg, by[bits.TrailingZeros32(uint32(n))])
	}
	return reg
}

// multModP multiplies two polynomials modulo that of CRC-32.
func multModP(a, b uint32) uint32 {
	var p uint32
	for range 32 {
		p ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return p
}

// byteEffects returns, by value, the effect on the register of a byte that n bytes follow.
func byteEffects(n int) (t [256]uint32) {
	for b := 1; b < len(t); b++ {
		if b&(b-1) == 0 {
			t[b] = shift(uint32(b), n+1, &forward) // the register takes a byte in its low bits
		} else {
			t[b] = t[b&(b-1)] ^ t[b&-b]
		}
	}
	return t
}

// field is the effect on the register of a big-endian 16-bit number, by its high and
// its low byte.
type field [2][256]uint32

// newField returns the field that n bytes follow.
func newField(n int) *field { return &field{byteEffects(n + 1), byteEffects(n)} }

func (f *field) at(v uint16) uint32 { return f[0][v>>8] ^ f[1][v&0xff] }

// sliceTables are the effects of twelve consecutive bytes, the last one first.
var sliceTables = func() (t [12][256]uint32) {
	for k := range t {
		t[k] = byteEffects(k)
	}
	return t
}()

// Update adds b to the checksum crc, as crc32.Update does with the IEEE table. On amd64
// it takes half of the time for a short b. So it does for a length that is no multiple
// of 16, as in every packet.
//
//hot:bench BenchmarkICRC
func Update(crc uint32, b []byte) uint32 {
	if runtime.GOARCH != "amd64" { // the CPU has a CRC-32 instruction
		return crc32.Update(crc, crc32.IEEETable, b)
	}
	if len(b) < crcBulk {
		return updateSliced(crc, b)
	}
	n := len(b) & 15
	return crc32.Update(updateSliced(crc, b[:n]), crc32.IEEETable, b[n:])
}

// crcBulk is the length from which crc32.Update uses carry-less multiplication.
const crcBulk = 64

// updateSliced is Update for few bytes. The program may change them while the device
// reads them, so the function is hidden from the race detector.
//
//go:norace
func updateSliced(crc uint32, b []byte) uint32 {
	le, t := binary.LittleEndian, &sliceTables
	crc = ^crc
	for ; len(b) >= 12; b = b[12:] { // a PSN and eight more bytes
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

// behindID is the number of header bytes between the identification and the BTH.
const behindID = IPv4Len - 6 + UDPLen

// SolveID returns the IPv4 identification of a packet. The ICRC covers it, but a UDP
// socket does not show it. zero is the ICRC computed with identification 0, got the
// received one, n the length from the BTH to the padding in bytes. If zero was computed
// with another identification, the result is the exclusive or of the two. ok is false
// if no identification explains the difference. Random damage is taken for another
// identification once in 65536 cases.
//
// Cost: about 0.2 µs.
func SolveID(zero, got uint32, n int) (id uint16, ok bool) {
	reg := shift(zero^got, behindID+2+n, &backward)
	if reg > 0xffff {
		return 0, false
	}
	return bits.ReverseBytes16(uint16(reg)), true
}
