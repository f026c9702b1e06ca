package wire

import "hash/crc32"

// The identification of an IPv4 header is covered by the ICRC, and a UDP socket
// does not show it. A CRC is linear: the difference between the checksum with
// identification 0 and the one that came is the identification, moved on by the
// bytes behind it. Moving it back by multiplying with a power of x modulo the
// polynomial shows whether 16 bits explain the difference.

// SolveID gives the identification with which the checksum of a packet would be
// got instead of zero, the one with 0. n is the number of bytes that the
// checksum covers behind the identification. ok is false where none is.
func SolveID(zero, got uint32, n int) (id uint16, ok bool) {
	reg := multModP(zero^got, xPow(-8*int64(n+2)))
	if reg > 0xffff {
		return 0, false
	}
	return uint16(reg&0xff)<<8 | uint16(reg>>8), true // the register takes the first byte lowest
}

// BehindID is n of SolveID for a packet of this flow.
func (f *Flow) BehindID(covered int) int { return IPv4Len - 6 + UDPLen + covered }

// multModP multiplies two polynomials over GF(2) modulo CRC-32's, in reflected
// form: bit 31 is x^0.
func multModP(a, b uint32) uint32 {
	var p uint32
	for m := uint32(1) << 31; m != 0; m >>= 1 {
		if a&m != 0 {
			p ^= b
		}
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return p
}

// powers holds x^(2^k).
var powers = func() (t [32]uint32) {
	p := uint32(1) << 30 // x
	for k := range t {
		t[k] = p
		p = multModP(p, p)
	}
	return t
}()

// xPow is x^n; the polynomial is primitive, so exponents count modulo 2^32-1.
func xPow(n int64) uint32 {
	const order = 1<<32 - 1
	e := uint64((n%order + order) % order)
	p := uint32(1) << 31 // 1
	for k := 0; e != 0; k, e = k+1, e>>1 {
		if e&1 != 0 {
			p = multModP(p, powers[k])
		}
	}
	return p
}
