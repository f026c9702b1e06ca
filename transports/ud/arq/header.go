package arq

import "encoding/binary"

// HeaderLen is the length in bytes of the header in front of each message.
const HeaderLen = 24

// Flow is the number of a flow, chosen by the side that uses it: an index and the
// generation of that index. It has 24 bits; 0 means no flow.
type Flow uint32

// Kind is the kind of a packet.
type Kind uint8

// Kinds of packets. Data and End are numbered, and retransmitted until they are
// acknowledged. Control packets are sent once.
const (
	// Data carries a message. ID is free for the user.
	Data Kind = 1
	// End is the last packet of a flow. ID is the reason.
	End Kind = 2
	// Control is neither. ID is the type of the control packet.
	Control Kind = 3
)

// Types of control packets, in the ID field.
const (
	// Ack only acknowledges. C and the words after the header are the Selective. Seq is the
	// number of duplicate packets that the receiver has received.
	Ack uint8 = iota
	// Probe is a liveness probe and requests an Ack. Seq is the flow's next number.
	Probe
	// Connect requests a flow. To is the initiator's number of the flow, Seq the first
	// sequence number, C the name of the target interface. The initiator's address follows
	// the header.
	Connect
	// Accept replies to Connect. AckOf is the initiator's number of the flow, Ack its first
	// sequence number, Seq the acceptor's number of the flow.
	Accept
	// Reject replies to Connect if the interface has another name. AckOf and Ack are as in
	// Accept.
	Reject
	// Reset replies to a numbered packet or Probe of a flow that does not exist. To and Seq
	// are those of that packet.
	Reset
	// CloseComplete informs the receiver To that the sender has received the ACK of the End. The
	// receiver can be removed. Seq is the number after the End.
	CloseComplete
	// Close informs the sender AckOf that the acceptor closes. To is the receiver. The sender
	// replies with CloseComplete.
	Close
	numControl
)

// Reasons of an End, in the ID field.
const (
	// EndFlow: the sender closed the flow.
	EndFlow uint8 = iota
	// EndAll: the sender closed its interface.
	EndAll
)

// Header is the header of every packet. It has three words, in little-endian byte order:
//
//	A: kind 2 bits, asks 1, ID 5 | to 24 | seq 32
//	B: window 8 | ack of 24      | ack 32
//	C: the user's
type Header struct{ A, B, C uint64 }

const (
	ackReqBit = 1 << 5
	flowMask  = 1<<24 - 1
	idMask    = 1<<5 - 1
)

func wordA(k Kind, id uint8, to Flow, seq Seq) uint64 {
	return uint64(k)<<6 | uint64(id&idMask) | uint64(to)<<8 | uint64(seq)<<32
}

// Kind returns the kind of the packet.
func (h *Header) Kind() Kind { return Kind(h.A >> 6 & 3) }

// ID returns the user's ID of Data, the reason of End, or the type of a control packet.
func (h *Header) ID() uint8 { return uint8(h.A & idMask) }

// AckReq reports whether the sender requests an ACK at once.
func (h *Header) AckReq() bool { return h.A&ackReqBit != 0 }

// To returns the flow of the packet, by its receiver's number.
func (h *Header) To() Flow { return Flow(h.A >> 8 & flowMask) }

// Seq returns the sequence number of the packet.
func (h *Header) Seq() Seq { return Seq(h.A >> 32) }

// AckOf returns the flow that Ack acknowledges, by its sender's number; 0: none.
func (h *Header) AckOf() Flow { return Flow(h.B >> 8 & flowMask) }

// Window returns the number of packets from Ack on that the receiver accepts.
func (h *Header) Window() uint8 { return uint8(h.B) }

// Ack returns the number before which all packets have arrived.
func (h *Header) Ack() Seq { return Seq(h.B >> 32) }

// Put writes the header to b, which must have at least HeaderLen bytes.
func (h *Header) Put(b []byte) {
	_ = b[HeaderLen-1]
	binary.LittleEndian.PutUint64(b, h.A)
	binary.LittleEndian.PutUint64(b[8:], h.B)
	binary.LittleEndian.PutUint64(b[16:], h.C)
}

// Parse reads the header of a packet. It returns false if there is no valid one. It does
// not validate flow and sequence numbers.
func Parse(b []byte) (h Header, ok bool) {
	if len(b) < HeaderLen {
		return h, false
	}
	h.A, h.B, h.C = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	return h, h.A>>6&3 != 0 && (h.Kind() != Control || h.ID() < numControl)
}

// Selective is a selective acknowledgement. Bit i of word w is set if packet
// Ack + 1 + 64·w + i has arrived.
type Selective [4]uint64

// Append appends all words but the first, without trailing zero words. The first word is
// the header's C.
func (s *Selective) Append(b []byte) []byte {
	n := len(s)
	for n > 1 && s[n-1] == 0 {
		n--
	}
	for _, w := range s[1:n] {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// ParseSelective reads the format of Append from b, which follows the header h.
func ParseSelective(h *Header, b []byte) (s Selective) {
	s[0] = h.C
	for i := 1; i < len(s) && len(b) >= 8; i++ {
		s[i], b = binary.LittleEndian.Uint64(b), b[8:]
	}
	return s
}

// Seq is a sequence number. It wraps around.
type Seq uint32

// Diff returns s - t, which is negative if s is before t.
func (s Seq) Diff(t Seq) int32 { return int32(s - t) }
