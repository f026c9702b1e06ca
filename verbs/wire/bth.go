package wire

import (
	"encoding/binary"

	"github.com/goucx/goucx/verbs"
)

// BTHLen is the length of the base transport header in bytes.
const BTHLen = 12

// BTH is a view of a base transport header: at least BTHLen bytes. The setters
// write one field each and leave the reserved bits of Put alone.
//
//	0 opcode | 1 SE, MigReq, PadCnt, TVer | 2-3 P_Key | 4 FECN, BECN, reserved
//	5-7 destination QPN | 8 AckReq, reserved | 9-11 PSN
//
// Source: IBTA vol. 1, 9.2.
type BTH []byte

// bthCongestion is the byte of the congestion bits, which the ICRC masks.
const bthCongestion = 4

// mask24 holds the bits of a QPN, PSN or MSN.
const mask24 = 1<<24 - 1

// Bits of byte 1 and of bytes 4 and 8.
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

// Put writes all fields. MigReq is set, as hardware does; receivers ignore it.
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

// Opcode is the packet's opcode.
func (h BTH) Opcode() Opcode { return Opcode(h[0]) }

// Solicited reports the solicited-event bit.
func (h BTH) Solicited() bool { return h[1]&bthSolicited != 0 }

// Pad is the number of zero bytes between payload and ICRC, 0 to 3.
func (h BTH) Pad() int { return int(h[1] >> bthPadShift & 3) }

// Version is the transport header version, 0.
func (h BTH) Version() uint8 { return h[1] & 0xf }

// PKey is the partition key.
func (h BTH) PKey() uint16 { return binary.BigEndian.Uint16(h[2:]) }

// FECN reports the forward congestion bit.
func (h BTH) FECN() bool { return h[4]&bthFECN != 0 }

// BECN reports the backward congestion bit.
func (h BTH) BECN() bool { return h[4]&bthBECN != 0 }

// Dest is the destination queue pair.
func (h BTH) Dest() verbs.QPN { return verbs.QPN(binary.BigEndian.Uint32(h[4:]) & mask24) }

// AckReq reports whether the sender asks for an acknowledgement.
func (h BTH) AckReq() bool { return h[8]&bthAckReq != 0 }

// PSN is the packet sequence number.
func (h BTH) PSN() verbs.PSN { return verbs.PSN(binary.BigEndian.Uint32(h[8:]) & mask24) }

// SetAckReq asks for an acknowledgement.
func (h BTH) SetAckReq() { h[8] |= bthAckReq }

// SetPSN replaces the packet sequence number.
func (h BTH) SetPSN(p verbs.PSN) {
	h[9], h[10], h[11] = byte(p>>16), byte(p>>8), byte(p)
}

// PKeysMatch reports whether packets with key a are for a port with key b: the
// low 15 bits are equal and not zero, and one of them is a full member.
//
// Source: IBTA vol. 1, 10.9.
func PKeysMatch(a, b uint16) bool {
	return a&0x7fff == b&0x7fff && a&0x7fff != 0 && (a|b)&0x8000 != 0
}
