package wire

import "math/bits"

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
