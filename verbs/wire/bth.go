package wire

import (
	"encoding/binary"

	"github.com/goucx/goucx/verbs"
)

// BTHLen is the length of the base transport header in bytes.
const BTHLen = 12

// BTH is a view of a base transport header of at least BTHLen bytes. Header is the
// codec; the view serves code that reads few fields of many packets.
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

// Bits of bytes 1 and 8.
const (
	bthSolicited = 1 << 7
	bthMigrated  = 1 << 6
	bthPadShift  = 4
	bthAckReq    = 1 << 7
)

// BTHFields are the fields of a base transport header.
type BTHFields struct {
	Opcode    Opcode
	Solicited bool
	AckReq    bool
	PadCnt    uint8 // 0 to 3 bytes
	PKey      uint16
	DestQP    verbs.QPN
	PSN       verbs.PSN
}

// Put writes all fields. It sets MigReq, as hardware does; receivers ignore it.
func (h BTH) Put(f *BTHFields) {
	_ = h[BTHLen-1]
	bits := bthMigrated | f.PadCnt<<bthPadShift
	if f.Solicited {
		bits |= bthSolicited
	}
	binary.BigEndian.PutUint64(h, uint64(f.Opcode)<<56|uint64(bits)<<48|uint64(f.PKey)<<32|uint64(f.DestQP)&mask24)
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

// PadCnt returns the number of zero bytes between payload and ICRC, 0 to 3.
func (h BTH) PadCnt() int { return int(h[1] >> bthPadShift & 3) }

// Version returns the transport header version; 0 is the only valid one.
func (h BTH) Version() uint8 { return h[1] & 0xf }

// PKey returns the partition key.
func (h BTH) PKey() uint16 { return binary.BigEndian.Uint16(h[2:]) }

// DestQP returns the destination QPN.
func (h BTH) DestQP() verbs.QPN { return verbs.QPN(binary.BigEndian.Uint32(h[4:]) & mask24) }

// AckReq reports whether the sender requests an ACK.
func (h BTH) AckReq() bool { return h[8]&bthAckReq != 0 }

// PSN returns the packet sequence number.
func (h BTH) PSN() verbs.PSN { return verbs.PSN(binary.BigEndian.Uint32(h[8:]) & mask24) }

// RETH is a view of an RDMA extended transport header: address, key and length of the
// remote memory.
type RETH []byte

// Put writes the header; dmaLen is the length of the whole message.
func (h RETH) Put(va uint64, rkey, dmaLen uint32) {
	binary.BigEndian.PutUint64(h, va)
	binary.BigEndian.PutUint32(h[8:], rkey)
	binary.BigEndian.PutUint32(h[12:], dmaLen)
}

// VA returns the remote address.
func (h RETH) VA() uint64 { return binary.BigEndian.Uint64(h) }

// RKey returns the remote key.
func (h RETH) RKey() uint32 { return binary.BigEndian.Uint32(h[8:]) }

// DMALen returns the length of the whole message in bytes.
func (h RETH) DMALen() uint32 { return binary.BigEndian.Uint32(h[12:]) }

// PKeysMatch reports whether a port with key b accepts packets with key a. The low 15
// bits must be equal and not zero, and at least one of the two must be a full member.
//
// Source: IBTA vol. 1, 10.9.
func PKeysMatch(a, b uint16) bool {
	return a&0x7fff == b&0x7fff && a&0x7fff != 0 && (a|b)&0x8000 != 0
}
