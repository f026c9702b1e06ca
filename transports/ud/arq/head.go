package arq

import "encoding/binary"

// HeadLen is the length in bytes of what precedes each message.
const HeadLen = 24

// Flow is the number of a flow at the side that gave it: an index, and the
// generation of its use. 24 bits; 0 names none.
type Flow uint32

// Kind is what a packet is.
type Kind uint8

// Kinds of packets. Data and End are numbered and go until they are acknowledged;
// the others go once.
const (
	// Data carries a message; ID is free for the user.
	Data Kind = 1
	// End is the last packet of a flow; ID is a reason.
	End Kind = 2
	// Control is neither; ID says what.
	Control Kind = 3
)

// What control packets say, as their ID.
const (
	// Ack acknowledges and carries nothing else. C and the words behind the head are
	// the packets beyond Ack that arrived, Seq is how many came more than once.
	Ack uint8 = iota
	// Poke wants an answer; Seq is what the flow will send next.
	Poke
	// Connect asks for a flow: To is the initiator's number, Seq the first sequence
	// number, C the name of the interface that is meant. The initiator's address
	// follows.
	Connect
	// Accept answers: AckOf is the initiator's number, Ack its first sequence number,
	// Seq the acceptor's number.
	Accept
	// Refuse answers: AckOf and Ack as in Accept. Nobody of that name is here.
	Refuse
	// Unknown answers a numbered packet or a Poke: To and Seq are those of it.
	Unknown
	// Farewell tells a receiver, To, that its sender has the acknowledgement of the
	// end; Seq is what would come next.
	Farewell
	// Bye tells a sender, AckOf, that its receiver, To, goes: the acceptor closes. A
	// Farewell answers it.
	Bye
	numControl
)

// Reasons of an End, as its ID.
const (
	// EndFlow: the sender is done.
	EndFlow uint8 = iota
	// EndAll: and closes altogether.
	EndAll
)

// Head precedes every message. Three words, least significant byte first:
//
//	A: kind 2 bits, asks 1, ID 5 | to 24 | seq 32
//	B: window 8 | ack of 24      | ack 32
//	C: the user's
type Head struct{ A, B, C uint64 }

const (
	askBit   = 1 << 5
	flowMask = 1<<24 - 1
	idMask   = 1<<5 - 1
)

func wordA(k Kind, id uint8, to Flow, seq Seq) uint64 {
	return uint64(k)<<6 | uint64(id&idMask) | uint64(to)<<8 | uint64(seq)<<32
}

// Kind is what the packet is.
func (h *Head) Kind() Kind { return Kind(h.A >> 6 & 3) }

// ID is the user's number, or what a control packet says.
func (h *Head) ID() uint8 { return uint8(h.A & idMask) }

// Asks reports whether an acknowledgement is wanted at once.
func (h *Head) Asks() bool { return h.A&askBit != 0 }

// To is the flow, by its receiver's number.
func (h *Head) To() Flow { return Flow(h.A >> 8 & flowMask) }

// Seq is the packet's number in the flow.
func (h *Head) Seq() Seq { return Seq(h.A >> 32) }

// AckOf is the flow that Ack is of, by its sender's number; 0: of none.
func (h *Head) AckOf() Flow { return Flow(h.B >> 8 & flowMask) }

// Window is how many packets from Ack on are taken.
func (h *Head) Window() uint8 { return uint8(h.B) }

// Ack is the number up to which all have arrived.
func (h *Head) Ack() Seq { return Seq(h.B >> 32) }

// Put writes the head to b, which must be HeadLen long.
func (h *Head) Put(b []byte) {
	_ = b[HeadLen-1]
	binary.LittleEndian.PutUint64(b, h.A)
	binary.LittleEndian.PutUint64(b[8:], h.B)
	binary.LittleEndian.PutUint64(b[16:], h.C)
}

// Parse reads the head of a packet; false: it is none. Numbers are as they came.
func Parse(b []byte) (h Head, ok bool) {
	if len(b) < HeadLen {
		return h, false
	}
	h.A, h.B, h.C = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	return h, h.A>>6&3 != 0 && (h.Kind() != Control || h.ID() < numControl)
}

// Selective tells packets that arrived beyond the acknowledged ones: bit i of
// word w stands for Ack + 1 + 64·w + i.
type Selective [4]uint64

// Append appends the words of an Ack that the head has no room for, as many as
// hold something. The head's C is the first.
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

// ParseSelective reads what Append wrote behind h.
func ParseSelective(h *Head, b []byte) (s Selective) {
	s[0] = h.C
	for i := 1; i < len(s) && len(b) >= 8; i++ {
		s[i], b = binary.LittleEndian.Uint64(b), b[8:]
	}
	return s
}

// Seq is a sequence number. It wraps around.
type Seq uint32

// Diff is how far s is beyond t; negative where it is before.
func (s Seq) Diff(t Seq) int32 { return int32(s - t) }
