package wire

import (
	"encoding/binary"
	"slices"

	"github.com/goucx/goucx/verbs"
)

// Lengths of the extension headers in bytes.
const (
	DETHLen         = 8
	RETHLen         = 16
	AtomicETHLen    = 28
	AETHLen         = 4
	AtomicAckETHLen = 8
	ImmLen          = 4
	IETHLen         = 4
)

// ICRCLen is the length of the invariant CRC at a packet's end, in bytes.
const ICRCLen = 4

// MaxHeaderLen is the length of the longest header, that of an atomic request.
const MaxHeaderLen = BTHLen + AtomicETHLen

// Header holds the fields of the BTH and of all extension headers, with the names of
// the specification. Only the fields that the opcode has (Info.Headers) are valid. Parse
// leaves the others unchanged, so a Header is reused without being cleared.
//
// The opcode table (Info) says which extension headers follow the BTH. They are in the
// order of the bits of Headers.
//
// Source: IBTA vol. 1, 9.2 to 9.3.
type Header struct {
	Opcode    Opcode
	Solicited bool  // SE, solicited event
	AckReq    bool  // the sender requests an ACK
	PadCnt    uint8 // zero bytes between payload and ICRC, 0 to 3
	PKey      uint16
	DestQP    verbs.QPN
	PSN       verbs.PSN

	Syndrome  Syndrome // AETH
	MSN       uint32
	ImmDt     uint32 // ImmDt, or the R_Key of the IETH
	RKey      uint32 // RETH, AtomicETH
	DMALen    uint32 // RETH: length of the whole message
	VA        uint64 // RETH, AtomicETH
	SwapDt    uint64 // AtomicETH: the swap value or the addend
	CmpDt     uint64
	OrigRemDt uint64 // AtomicAckETH: the value before the operation
	QKey      uint32 // DETH
	SrcQP     verbs.QPN
}

// Len returns the length of BTH and extension headers in bytes.
func (h *Header) Len() int { return int(h.Opcode.Info().Len) }

// PacketLen returns the length from BTH to ICRC of a packet with n bytes of data.
func (i *Info) PacketLen(n int) int { return int(i.Len) + n + Pad(n) + ICRCLen }

// Pad returns how many bytes of padding a payload of n bytes needs.
func Pad(n int) int { return -n & 3 }

// Append appends the header to b.
func (h *Header) Append(b []byte) []byte {
	n := len(b)
	b = slices.Grow(b, MaxHeaderLen)[:n+MaxHeaderLen]
	return b[:n+h.Put(b[n:])]
}

// Put writes the header to b, which has room for MaxHeaderLen bytes, and returns its
// length.
//
//hot:bench BenchmarkHeader
func (h *Header) Put(b []byte) int {
	_ = b[MaxHeaderLen-1]
	BTH(b).Put(&BTHFields{
		Opcode: h.Opcode, Solicited: h.Solicited, AckReq: h.AckReq, PadCnt: h.PadCnt, PKey: h.PKey, DestQP: h.DestQP, PSN: h.PSN,
	})
	be, info := binary.BigEndian, h.Opcode.Info()
	has, ext := info.Headers, b[BTHLen:]
	switch has {
	case 0:
		return BTHLen
	case HasAETH:
		be.PutUint32(ext, uint32(h.Syndrome)<<24|h.MSN&mask24)
		return BTHLen + AETHLen
	case HasRETH:
		RETH(ext).Put(h.VA, h.RKey, h.DMALen)
		return BTHLen + RETHLen
	default: // any other combination, below
	}
	if has&HasDETH != 0 {
		be.PutUint32(ext, h.QKey)
		be.PutUint32(ext[4:], uint32(h.SrcQP)&mask24)
		ext = ext[DETHLen:]
	}
	if has&HasRETH != 0 {
		RETH(ext).Put(h.VA, h.RKey, h.DMALen)
		ext = ext[RETHLen:]
	}
	if has&HasAtomicETH != 0 {
		be.PutUint64(ext, h.VA)
		be.PutUint32(ext[8:], h.RKey)
		be.PutUint64(ext[12:], h.SwapDt)
		be.PutUint64(ext[20:], h.CmpDt)
		ext = ext[AtomicETHLen:]
	}
	if has&HasAETH != 0 {
		be.PutUint32(ext, uint32(h.Syndrome)<<24|h.MSN&mask24)
		ext = ext[AETHLen:]
	}
	if has&HasAtomicAckETH != 0 {
		be.PutUint64(ext, h.OrigRemDt)
		ext = ext[AtomicAckETHLen:]
	}
	if has&(HasImm|HasIETH) != 0 {
		be.PutUint32(ext, h.ImmDt)
	}
	return int(info.Len)
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

// Parse fills the header from b, a packet from the BTH to the padding, which may hold
// any bytes. It returns the payload, a slice of b. If there is a fault, h is undefined.
//
//hot:bench BenchmarkHeader
func (h *Header) Parse(b []byte) (payload []byte, f Fault) {
	if len(b) < BTHLen {
		return nil, FaultShort
	}
	v := BTH(b)
	info := v.Opcode().Info()
	n, pad := len(b)-int(info.Len), v.PadCnt()
	switch {
	case info.Kind == KindNone:
		return nil, FaultOpcode
	case v.Version() != 0:
		return nil, FaultVersion
	case n < pad:
		return nil, FaultShort
	case n&3 != 0:
		return nil, FaultPad
	case n > 0 && !info.Payload:
		return nil, FaultPayload
	}
	h.Opcode, h.Solicited, h.AckReq, h.PadCnt = v.Opcode(), v.Solicited(), v.AckReq(), uint8(pad)
	h.PKey, h.DestQP, h.PSN = v.PKey(), v.DestQP(), v.PSN()
	be := binary.BigEndian
	ext := b[BTHLen:info.Len]
	switch has := info.Headers; has {
	case 0:
	case HasAETH:
		h.Syndrome, h.MSN = Syndrome(ext[0]), be.Uint32(ext)&mask24
	case HasRETH:
		h.VA, h.RKey, h.DMALen = RETH(ext).VA(), RETH(ext).RKey(), RETH(ext).DMALen()
	default:
		if has&HasDETH != 0 {
			h.QKey, h.SrcQP = be.Uint32(ext), verbs.QPN(be.Uint32(ext[4:])&mask24)
			ext = ext[DETHLen:]
		}
		if has&HasRETH != 0 {
			h.VA, h.RKey, h.DMALen = RETH(ext).VA(), RETH(ext).RKey(), RETH(ext).DMALen()
			ext = ext[RETHLen:]
		}
		if has&HasAtomicETH != 0 {
			h.VA, h.RKey, h.SwapDt, h.CmpDt = be.Uint64(ext), be.Uint32(ext[8:]), be.Uint64(ext[12:]), be.Uint64(ext[20:])
			ext = ext[AtomicETHLen:]
		}
		if has&HasAETH != 0 {
			h.Syndrome, h.MSN = Syndrome(ext[0]), be.Uint32(ext)&mask24
			ext = ext[AETHLen:]
		}
		if has&HasAtomicAckETH != 0 {
			h.OrigRemDt = be.Uint64(ext)
			ext = ext[AtomicAckETHLen:]
		}
		if has&(HasImm|HasIETH) != 0 {
			h.ImmDt = be.Uint32(ext)
		}
	}
	return b[info.Len : len(b)-pad], FaultNone
}

// Packet is a parsed packet. Its payload is a slice of the parsed bytes, without the
// padding.
type Packet struct {
	Header
	Payload []byte
}

// Parse parses b, a packet from the BTH to the ICRC, as in a UDP payload. It does not
// check the ICRC.
func Parse(b []byte) (p Packet, f Fault) {
	if len(b) < BTHLen+ICRCLen {
		return Packet{}, FaultShort
	}
	if p.Payload, f = p.Header.Parse(b[:len(b)-ICRCLen]); f != FaultNone {
		return Packet{}, f
	}
	return p, FaultNone
}
