package wire

import "encoding/binary"

// ICRCLen is the length of the invariant CRC at a packet's end, in bytes.
const ICRCLen = 4

// Packet is a view of a parsed packet, from the BTH to the ICRC. It does not own the
// bytes.
type Packet struct {
	b    []byte
	info *Info
}

// Fault is the reason why bytes are not a valid packet; zero: they are.
type Fault uint8

// Faults.
const (
	FaultNone    Fault = iota
	FaultShort         // shorter than its headers
	FaultOpcode        // a reserved opcode
	FaultVersion       // a transport header version other than 0
	FaultPad           // padding that does not fit the length
	FaultPayload       // a payload, but the opcode has none
	numFaults
)

var faultNames = [numFaults]string{"none", "short", "opcode", "version", "padding", "payload"}

// String returns the name of the fault, for counters.
func (f Fault) String() string {
	if f < numFaults {
		return faultNames[f]
	}
	return "fault?"
}

// Parse parses b, a UDP payload. It does not check the ICRC.
//
//hot:bench BenchmarkParse
func Parse(b []byte) (Packet, Fault) {
	if len(b) < BTHLen+ICRCLen {
		return Packet{}, FaultShort
	}
	info, f := Inspect(b[:len(b)-ICRCLen])
	if f != FaultNone {
		return Packet{}, f
	}
	return Packet{b, info}, FaultNone
}

// Inspect is Parse for a packet without its ICRC. It returns the description of the
// opcode if headers, payload and padding of covered are valid.
//
//hot:bench BenchmarkParse
func Inspect(covered []byte) (*Info, Fault) {
	if len(covered) < BTHLen {
		return nil, FaultShort
	}
	h := BTH(covered)
	info := h.Opcode().Info()
	if info.Kind == KindNone {
		return nil, FaultOpcode
	}
	if h.Version() != 0 {
		return nil, FaultVersion
	}
	n := len(covered) - int(info.Len)
	if n < h.Pad() {
		return nil, FaultShort
	}
	if n&3 != 0 {
		return nil, FaultPad
	}
	if n > 0 && !info.Payload {
		return nil, FaultPayload
	}
	return info, FaultNone
}

// BTH returns the base transport header.
func (p Packet) BTH() BTH { return BTH(p.b[:BTHLen]) }

// Info returns the description of the packet's opcode.
func (p Packet) Info() *Info { return p.info }

// Payload returns the data without padding.
func (p Packet) Payload() []byte {
	return p.b[p.info.Len : len(p.b)-ICRCLen-BTH(p.b).Pad()]
}

// DETH returns the datagram header. The opcode must have one.
func (p Packet) DETH() DETH { return DETH(p.b[BTHLen : BTHLen+DETHLen]) }

// RETH returns the RDMA header. The opcode must have one.
func (p Packet) RETH() RETH { return RETH(p.b[BTHLen : BTHLen+RETHLen]) }

// AtomicETH returns the atomic header. The opcode must have one.
func (p Packet) AtomicETH() AtomicETH { return AtomicETH(p.b[BTHLen : BTHLen+AtomicETHLen]) }

// AETH returns the ACK header. The opcode must have one.
func (p Packet) AETH() AETH { return AETH(p.b[BTHLen : BTHLen+AETHLen]) }

// AtomicAckETH returns the header with the old value. The opcode must have one.
func (p Packet) AtomicAckETH() AtomicAckETH {
	return AtomicAckETH(p.b[BTHLen+AETHLen : BTHLen+AETHLen+AtomicAckETHLen])
}

// Imm returns the immediate data, or the key to invalidate, from the last header. The
// opcode must have one.
func (p Packet) Imm() uint32 { return binary.BigEndian.Uint32(p.b[p.info.Len-ImmLen:]) }

// ICRC returns the packet's checksum.
func (p Packet) ICRC() uint32 { return binary.LittleEndian.Uint32(p.b[len(p.b)-ICRCLen:]) }

// Covered returns the bytes after the UDP header that the ICRC covers.
func (p Packet) Covered() []byte { return p.b[:len(p.b)-ICRCLen] }

// Pad returns how many zero bytes follow a payload of n bytes.
func Pad(n int) int { return -n & 3 }

// PacketLen returns the length from BTH to ICRC of a packet with n bytes of data.
func (i *Info) PacketLen(n int) int { return int(i.Len) + n + Pad(n) + ICRCLen }
