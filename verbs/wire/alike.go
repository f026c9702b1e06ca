package wire

import "encoding/binary"

// Alike computes the ICRC of short packets that follow one another and have their
// flow, their length and their first eight bytes in common, as the messages of a
// train have: it keeps the register behind those bytes. Any other packet costs no
// more than with the Prefix alone. The zero Alike is ready for use.
//
// Concurrency: one goroutine at a time.
type Alike struct {
	first uint64
	n     int
	flow  Prefix
	reg   uint32 // with identification 0
}

// alikeLen is how much of a header is looked at: up to its number.
const alikeLen = 8

// idBehind is what the identification does to the register behind alikeLen bytes
// more.
var idBehind = newField(IPv4Len - ip4ID - 2 + UDPLen + alikeLen)

// sum computes the checksum of b, a packet from the BTH to the ICRC; id is the
// identification of its IPv4 header.
func (a *Alike) sum(p Prefix, b []byte, id uint16) uint32 {
	if first := binary.NativeEndian.Uint64(b); first != a.first || len(b) != a.n || p != a.flow {
		a.first, a.n, a.flow = first, len(b), p
		a.reg = p.Start(b[:alikeLen], len(b), 0)
	}
	reg := a.reg
	if !p.ipv6 {
		reg ^= idBehind.at(id)
	}
	return updateShort(reg, b[alikeLen:len(b)-ICRCLen])
}

// Seal is Prefix.Seal.
// hot: BenchmarkICRC
func (a *Alike) Seal(p Prefix, b []byte, id uint16) {
	binary.LittleEndian.PutUint32(b[len(b)-ICRCLen:], a.sum(p, b, id))
}

// Right reports whether the checksum of b is right with that identification: b is
// a packet from the BTH to the ICRC, BTHLen+ICRCLen bytes at least.
// hot: BenchmarkICRC
func (a *Alike) Right(p Prefix, b []byte, id uint16) bool {
	return a.sum(p, b, id) == binary.LittleEndian.Uint32(b[len(b)-ICRCLen:])
}
