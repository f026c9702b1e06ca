package ucp

// A message that is announced stays with its sender until the receiver asks:
//
//	sender                                  receiver
//	  RTS tag, its id, length       ──▶      matched, or kept as unexpected
//	                                ◀──      RTR the sender's id, its own id, bytes wanted
//	  data, data, data, its id      ──▶      straight into the buffer
//
// Both ids are those of slots. Each side withdraws by one more message: the
// receiver refuses, the sender gives up. Both messages may cross what they
// withdraw, so an id that has ended is dropped; one that the other side was
// never given is garbage (named.go).

// phase is where a send stands: the low byte of slot.parent.
type phase uint8

const (
	phaseNew   phase = iota // nothing was sent; or a part, in fragments
	phaseMatch              // sent whole, not yet matched; in lane.open
	phaseRTS                // announced, not yet asked for; in lane.open
	phaseData               // asked for; in lane.open
	phaseLent               // its memory is lent to the receiver; in lane.open
)

// What a send wishes, beside its phase in slot.parent.
const (
	wishSync  uint32 = 1 << (8 + iota) // to end when it is matched
	wishEager                          // not to be announced
	wishRndv                           // to be announced
)

func (s *slot) phase() phase { return phase(s.parent) }

func (s *slot) setPhase(p phase) { s.parent = s.parent&^0xff | uint32(p) }

// lends reports whether the peer may read the memory of the message.
func (s *slot) lends() bool { return s.op.sends() && s.phase() == phaseLent }

// sends reports whether k is a message on its way out.
func (k opKind) sends() bool { return k >= opTagSend && k <= opAMSend }

// receives reports whether k is a buffer that a message is put into.
func (k opKind) receives() bool { return k >= opTagRecv && k <= opAMFetch }

// fetching, in slot.left, marks a receive that asked for its data. arg is then
// the sender's id, aux the source, off the bytes that are there.
const fetching = 1

// awaitsKey, in slot.parent, marks one that asked for the key of its data.
const awaitsKey = 1

// reading marks one whose data is on its way out of the sender's memory: nothing
// but the end of that ends it.
const reading = 2
