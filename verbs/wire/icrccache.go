package wire

import "encoding/binary"

// ICRCCache computes the ICRC of consecutive short packets of one flow and one length, as
// in a segment batch. If they also have the same first eight bytes, it reuses the CRC
// register after those bytes. For other packets it costs no more than Prefix alone. The
// zero Alike is ready for use.
//
// Concurrency: one goroutine at a time.
type ICRCCache struct {
	firstBytes uint64
	n          int
	flow       Prefix
	reg        uint32 // after those bytes, for identification 0
}

// cachedLen is how many bytes of the BTH are cached: all before the PSN.
const cachedLen = 8

// cachedIDField is the effect of the IPv4 identification on the register after cachedLen
// bytes of the BTH.
var cachedIDField = newField(IPv4Len - ip4ID - 2 + UDPLen + cachedLen)

// sum computes the ICRC of b, a packet from the BTH to the ICRC; id is the IPv4
// identification.
func (a *ICRCCache) sum(p Prefix, b []byte, id uint16) uint32 {
	if first := binary.NativeEndian.Uint64(b); first != a.firstBytes || len(b) != a.n || p != a.flow {
		a.firstBytes, a.n, a.flow = first, len(b), p
		a.reg = p.Start(b[:cachedLen], len(b), 0)
	}
	reg := a.reg
	if !p.ipv6 {
		reg ^= cachedIDField.at(id)
	}
	return updateSliced(reg, b[cachedLen:len(b)-ICRCLen])
}

// Seal is like Prefix.Seal.
//
//hot:bench BenchmarkICRC
func (a *ICRCCache) Seal(p Prefix, b []byte, id uint16) {
	binary.LittleEndian.PutUint32(b[len(b)-ICRCLen:], a.sum(p, b, id))
}

// Valid reports whether the ICRC of b is right for that identification. b is a packet
// from the BTH to the ICRC, at least BTHLen+ICRCLen bytes.
//
//hot:bench BenchmarkICRC
func (a *ICRCCache) Valid(p Prefix, b []byte, id uint16) bool {
	return a.sum(p, b, id) == binary.LittleEndian.Uint32(b[len(b)-ICRCLen:])
}
