package rc

import (
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// note is a connection message; docs/wire/rc.md has its layout.
type note struct {
	msg machine.Msg
	// separate: the OPEN must not be merged with a crossing OPEN.
	separate bool
	// hangUp: SHUTDOWN, the sender closes its interface.
	hangUp bool
	// drained: DRAINED, no operation of the sender is in flight on the retired QP msg.Pair.
	// asks: the sender waits for DRAINED. The state machine does not see these messages.
	drained, asks bool
	// refused: with RESET, a QP of the sender has rejected a request.
	refused bool
	// half belongs to msg.Pair, if msg.Half is true.
	half half
	// from is the sender's interface.
	from peer
}

// Layout of a connection message, little-endian.
const (
	noteVersion   = 2
	noteOffKind   = 1
	noteOffFlags  = 2
	noteOffWorker = 4
	noteOffFrom   = 20
	noteOffTo     = 28
	noteOffPair   = 36
	noteOffOld    = 40
	noteOffQPN    = 44
	noteOffPSN    = 48
	noteOffPort   = 52
	noteOffIface  = noteOffPort + nic.AddressLen
	noteMin       = noteOffIface + nic.IfaceLenMin + noteSum
	noteLen       = noteOffIface + nic.IfaceLenMax + noteSum // longest message
	noteSum       = 4

	noteResume   = 1
	noteClosing  = 2
	noteSeparate = 4
	noteHangUp   = 8
	noteDrained  = 16
	noteAsks     = 32
	noteRefused  = 64
	noteFlags    = noteResume | noteClosing | noteSeparate | noteHangUp | noteDrained | noteAsks | noteRefused
)

func (n *note) append(b []byte) []byte {
	start, le, m := len(b), binary.LittleEndian, &n.msg
	var flags byte
	for _, f := range []struct {
		set bool
		bit byte
	}{
		{m.Resume, noteResume},
		{m.Closing, noteClosing},
		{n.separate, noteSeparate},
		{n.hangUp, noteHangUp},
		{n.drained, noteDrained},
		{n.asks, noteAsks},
		{n.refused, noteRefused},
	} {
		if f.set {
			flags |= f.bit
		}
	}
	b = append(b, noteVersion, byte(m.Kind), flags, 0)
	b = append(b, m.Worker[:]...)
	b = le.AppendUint64(b, m.From)
	b = le.AppendUint64(b, m.To)
	b = le.AppendUint32(b, uint32(m.Pair))
	b = le.AppendUint32(b, uint32(m.Old))
	b = le.AppendUint32(b, uint32(n.half.qpn))
	b = le.AppendUint32(b, uint32(n.half.psn))
	from := n.from.address()
	b = from.AppendIface(from.AppendDevice(b))
	return nic.AppendSum(b, start)
}

// parse decodes a message. The error names the invalid field.
func (n *note) parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) < noteMin || len(b) > noteLen {
		return fmt.Errorf("connection message of %d bytes, want %d to %d: %w", len(b), noteMin, noteLen, ucs.ErrInvalid)
	}
	if err := nic.CheckSum(b); err != nil {
		return fmt.Errorf("connection message: %w: %w", err, ucs.ErrInvalid)
	}
	if b[0] != noteVersion || b[noteOffFlags]&^noteFlags != 0 {
		return fmt.Errorf("connection message of version %d with flags %#x: %w", b[0], b[noteOffFlags], ucs.ErrInvalid)
	}
	*n = note{
		msg: machine.Msg{
			Kind: machine.MsgKind(b[noteOffKind]), Worker: [16]byte(b[noteOffWorker:noteOffFrom]),
			From: le.Uint64(b[noteOffFrom:]), To: le.Uint64(b[noteOffTo:]),
			Pair: machine.PairID(le.Uint32(b[noteOffPair:])), Old: machine.PairID(le.Uint32(b[noteOffOld:])),
			Resume: b[noteOffFlags]&noteResume != 0, Closing: b[noteOffFlags]&noteClosing != 0,
		},
		separate: b[noteOffFlags]&noteSeparate != 0, hangUp: b[noteOffFlags]&noteHangUp != 0,
		drained: b[noteOffFlags]&noteDrained != 0, asks: b[noteOffFlags]&noteAsks != 0,
		refused: b[noteOffFlags]&noteRefused != 0,
		half:    half{verbs.QPN(le.Uint32(b[noteOffQPN:])), verbs.PSN(le.Uint32(b[noteOffPSN:]))},
	}
	if n.refused && (n.msg.Kind != machine.MsgReset || n.msg.To == 0) {
		return fmt.Errorf("connection message of kind %v for a refused access: %w", n.msg.Kind, ucs.ErrInvalid)
	}
	if n.msg.From == 0 || n.half.qpn > verbs.MulticastQPN || n.half.psn >= 1<<24 {
		return fmt.Errorf("connection message of connection %d with queue pair %#x: %w", n.msg.From, uint32(n.half.qpn), ucs.ErrInvalid)
	}
	return n.from.parse(uct.Address{Device: b[noteOffPort:noteOffIface], Iface: b[noteOffIface : len(b)-noteSum]})
}
