package ucp

// Rendezvous: the sender keeps a long message until the receiver requests it.
//
//	sender                                  receiver
//	  RTS tag, its id, length       ──▶      matched, or queued as unexpected
//	                                ◀──      RTR the sender's id, its own id, bytes wanted
//	  data, data, data, its id      ──▶      straight into the buffer
//
// Both ids are ids of slots. Each side cancels by one more message: the receiver sends
// amReject, the sender amCancel. A cancel may cross the messages that it cancels. So a
// message with the id of a completed operation is dropped. An id that the peer was never
// sent is a protocol violation (id_check.go).

// phase is the state of a send: the low byte of slot.parent.
type phase uint8

const (
	phaseNew     phase = iota // nothing was sent; or a fragmented message was sent in part
	phaseMatch                // sent completely, not yet matched; in lane.unacked
	phaseRTS                  // RTS sent, not yet requested; in lane.unacked
	phaseData                 // requested; in lane.unacked
	phaseExposed              // its memory is exposed to the receiver; in lane.unacked
)

// Flags of a send, beside its phase in slot.parent.
const (
	sendFlagSync  uint32 = 1 << (8 + iota) // completes when it is matched
	sendFlagEager                          // force eager
	sendFlagRndv                           // force rendezvous
)

func (s *slot) phase() phase { return phase(s.parent) }

func (s *slot) setPhase(p phase) { s.parent = s.parent&^0xff | uint32(p) }

// exposes reports whether the peer may read the memory of the message.
func (s *slot) exposes() bool { return s.op.sends() && s.phase() == phaseExposed }

// sends reports whether k sends a message.
func (k opKind) sends() bool { return k >= opTagSend && k <= opAMSend }

// receives reports whether k receives a message into a buffer.
func (k opKind) receives() bool { return k >= opTagRecv && k <= opAMFetch }

// recvRequested, in slot.partsLeft, marks a receive that has requested its data. Then arg is the
// sender's id, aux the index of the rx connection and off the number of bytes received.
const recvRequested = 1

// recvAwaitsKey, in slot.parent, marks a receive that has requested the key of its data.
const recvAwaitsKey = 1

// recvReading, in slot.partsLeft, marks a receive whose data is being read from the sender's memory.
// Only the end of the read completes it.
const recvReading = 2
