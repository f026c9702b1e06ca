package wire

import (
	"encoding/binary"

	"github.com/goucx/goucx/verbs"
)

// BTHLen is the length of the base transport header in bytes.
const BTHLen = 12

// BTH is a view of a base transport header of at least BTHLen bytes. Each setter writes
// one field and keeps the reserved bits.
//
//	0 opcode | 1 SE, MigReq, PadCnt, TVer | 2-3 P_Key | 4 FECN, BECN, reserved
//	5-7 destination QPN | 8 AckReq, reserved | 9-11 PSN
//
// Source: IBTA vol. 1, 9.2.
type BTH []byte

// bthCongestion is the offset of the congestion bits, which the ICRC masks.
const bthCongestion = 4

// mask24 covers a QPN, PSN or MSN.
const mask24 = 1<<24 - 1

// Bits of bytes 1, 4 and 8.
const (
	bthSolicited = 1 << 7
	bthMigrated  = 1 << 6
	bthPadShift  = 4
	bthFECN      = 1 << 7
	bthBECN      = 1 << 6
	bthAckReq    = 1 << 7
)

// BTHFields are the fields of a base transport header.
type BTHFields struct {
	Opcode    Opcode
	Solicited bool
	AckReq    bool
	Pad       uint8 // 0 to 3 bytes
	PKey      uint16
	Dest      verbs.QPN
	PSN       verbs.PSN
}

// Put writes all fields. It sets MigReq, as hardware does; receivers ignore it.
func (h BTH) Put(f *BTHFields) {
	_ = h[BTHLen-1]
	bits := bthMigrated | f.Pad<<bthPadShift
	if f.Solicited {
		bits |= bthSolicited
	}
	binary.BigEndian.PutUint64(h, uint64(f.Opcode)<<56|uint64(bits)<<48|uint64(f.PKey)<<32|uint64(f.Dest)&mask24)
	psn := uint32(f.PSN) & mask24
	if f.AckReq {
		psn |= bthAckReq << 24
	}
	binary.BigEndian.PutUint32(h[8:], psn)
}

// Opcode returns the opcode.
func (h BTH) Opcode() Opcode { return Opcode(h[0]) }

// Solicited reports whether the solicited-event bit is set.
func (h BTH) Solicited() bool { return h[1]&bthSolicited != 0 }

// Pad returns the number of zero bytes between payload and ICRC, 0 to 3.
func (h BTH) Pad() int { return int(h[1] >> bthPadShift & 3) }

// Version returns the transport header version; 0 is the only valid one.
func (h BTH) Version() uint8 { return h[1] & 0xf }

// PKey returns the partition key.
func (h BTH) PKey() uint16 { return binary.BigEndian.Uint16(h[2:]) }

// FECN reports whether the forward congestion bit is set.
func (h BTH) FECN() bool { return h[4]&bthFECN != 0 }

// BECN reports whether the backward congestion bit is set.
func (h BTH) BECN() bool { return h[4]&bthBECN != 0 }

// Dest returns the destination QPN.
func (h BTH) Dest() verbs.QPN { return verbs.QPN(binary.BigEndian.Uint32(h[4:]) & mask24) }

// AckReq reports whether the sender requests an ACK.
func (h BTH) AckReq() bool { return h[8]&bthAckReq != 0 }

// PSN returns the packet sequence number.
func (h BTH) PSN() verbs.PSN { return verbs.PSN(binary.BigEndian.Uint32(h[8:]) & mask24) }

// SetAckReq sets the AckReq bit.
func (h BTH) SetAckReq() { h[8] |= bthAckReq }

// SetPSN sets the packet sequence number.
func (h BTH) SetPSN(p verbs.PSN) {
	h[9], h[10], h[11] = byte(p>>16), byte(p>>8), byte(p)
}

// PKeysMatch reports whether a port with key b accepts packets with key a. The low 15
// bits must be equal and not zero, and at least one of the two must be a full member.
//
// Source: IBTA vol. 1, 10.9.
func PKeysMatch(a, b uint16) bool {
	return a&0x7fff == b&0x7fff && a&0x7fff != 0 && (a|b)&0x8000 != 0
}
