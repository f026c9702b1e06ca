package rc

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// Header before the payload of each message, little-endian; docs/wire/rc.md:
//
//	0 header u64 | 8 id u8 | 9 0 [7]
const (
	headerLen = 16
	offID     = 8
)

// Ids of the transport's own control messages. The header field carries their argument.
const (
	// idMarker is the switch-over marker: the sender's next message is in the QP that the
	// header names.
	idMarker = uct.NumAMIDs + iota
	// idShutdown is the SHUTDOWN message: the sender closed its interface.
	idShutdown
)

// ifaceName is the globally unique name of an interface.
type ifaceName [16]byte

// ifaceAddress is the part of an interface's address that is relative to its port.
type ifaceAddress struct {
	name   ifaceName
	worker uct.UUID
	// qpn and qkey address the QP for connection messages.
	qpn  verbs.QPN
	qkey uint32
	// seg is the length of the interface's receives in bytes.
	seg uint32
}

// peerAt returns the interface at address a.
func peerAt(a *nic.Address) peer {
	return peer{ifaceAddress{name: a.Name(), worker: a.Worker, qpn: a.QPN, qkey: a.QKey(), seg: a.Seg}, a.Port}
}

// address is the inverse of peerAt.
func (p *peer) address() nic.Address {
	return nic.Address{Port: p.port, Seg: p.iface.seg, Worker: p.iface.worker, QPN: p.iface.qpn}
}

// parse decodes both parts of an address. The error names the invalid field.
func (p *peer) parse(u uct.Address) error {
	var a nic.Address
	if err := a.Parse(u); err != nil {
		return err
	}
	*p = peerAt(&a)
	return nil
}

// connMsg is a connection message; docs/wire/rc.md has its layout.
type connMsg struct {
	msg machine.Msg
	// flags has those that are no fields of msg.
	flags msgFlags
	// qpInfo belongs to msg.Pair, if msg.Half is true.
	qpInfo qpInfo
	// refused, with REJECT, are the required features of the OPEN that the sender does not know.
	refused protocol.Features
	// from is the sender's interface.
	from peer
}

// Layout of a connection message, little-endian.
const (
	connMsgOffVersion  = 0
	connMsgOffKind     = 1
	connMsgOffFlags    = 2
	connMsgOffFeatures = 3
	connMsgOffWorker   = 4
	connMsgOffFrom     = 20
	connMsgOffTo       = 28
	connMsgOffPair     = 36
	connMsgOffOld      = 40
	connMsgOffQPN      = 44 // of REJECT: the refused features
	connMsgOffPSN      = 48
	connMsgOffPort     = 52
	connMsgOffIface    = connMsgOffPort + nic.AddressLen
	connMsgMinLen      = connMsgOffIface + nic.IfaceLenMin + connMsgSumLen
	connMsgMaxLen      = connMsgOffIface + nic.IfaceLenMax + connMsgSumLen // longest message
	connMsgSumLen      = 4
)

// connFormat is the format of connection messages. In all versions kind, both names of the
// connection and the sender's address are where they are now, so that a message can be refused.
var connFormat = protocol.Format{Name: "connection message of rc", Version: 3}

// msgFlags are the flags of a connection message.
type msgFlags byte

const (
	// flagResume and flagClosing are fields of machine.Msg.
	flagResume msgFlags = 1 << iota
	flagClosing
	// flagSeparate: the OPEN must not be merged with a crossing OPEN.
	flagSeparate
	// flagShutdown makes a SHUTDOWN: the sender closes its interface.
	flagShutdown
	// flagDrained makes a DRAINED: no operation of the sender is in flight on the retired QP
	// msg.Pair. flagWantReply: the sender waits for DRAINED. The state machine does not see these
	// messages.
	flagDrained
	flagWantReply
	// flagAccessError, with RESET: a QP of the sender has rejected a request.
	flagAccessError
	knownFlags = flagAccessError<<1 - 1
)

func (n *connMsg) has(f msgFlags) bool { return n.flags&f != 0 }

func (n *connMsg) append(b []byte) []byte {
	start, le, m := len(b), binary.LittleEndian, &n.msg
	flags := n.flags
	if m.Resume {
		flags |= flagResume
	}
	if m.Closing {
		flags |= flagClosing
	}
	b = append(b, connFormat.Version, byte(m.Kind), byte(flags), 0)
	b = append(b, m.Worker[:]...)
	b = le.AppendUint64(b, m.From)
	b = le.AppendUint64(b, m.To)
	b = le.AppendUint32(b, uint32(m.Pair))
	b = le.AppendUint32(b, uint32(m.Old))
	if m.Kind == machine.MsgReject {
		b = le.AppendUint32(b, uint32(n.refused))
	} else {
		b = le.AppendUint32(b, uint32(n.qpInfo.qpn))
	}
	b = le.AppendUint32(b, uint32(n.qpInfo.psn))
	from := n.from.address()
	b = from.AppendIface(from.AppendDevice(b))
	return nic.AppendChecksum(b, start)
}

// parse decodes a message. The error names the invalid field. It is a [protocol.Error] for a message of
// another version, or with an unknown required feature. Then n has its kind, its names and the
// sender, if these are valid.
func (n *connMsg) parse(b []byte) error {
	le := binary.LittleEndian
	*n = connMsg{}
	if len(b) <= connMsgOffFeatures+connMsgSumLen {
		return fmt.Errorf("connection message of %d bytes, want %d to %d: %w", len(b), connMsgMinLen, connMsgMaxLen, ucs.ErrInvalid)
	}
	if err := nic.VerifyChecksum(b); err != nil {
		return fmt.Errorf("connection message: %w: %w", err, ucs.ErrInvalid)
	}
	refusal := connFormat.Check(b[connMsgOffVersion], protocol.Features(b[connMsgOffFeatures]))
	if len(b) < connMsgMinLen || len(b) > connMsgMaxLen {
		return cmp.Or(refusal, fmt.Errorf("connection message of %d bytes, want %d to %d: %w", len(b), connMsgMinLen, connMsgMaxLen, ucs.ErrInvalid))
	}
	if err := n.from.parse(uct.Address{Device: b[connMsgOffPort:connMsgOffIface], Iface: b[connMsgOffIface : len(b)-connMsgSumLen]}); err != nil {
		return cmp.Or(refusal, err)
	}
	if refusal != nil {
		n.msg = machine.Msg{Kind: machine.MsgKind(b[connMsgOffKind]), From: le.Uint64(b[connMsgOffFrom:]), To: le.Uint64(b[connMsgOffTo:])}
		return refusal
	}
	flags := msgFlags(b[connMsgOffFlags])
	if flags&^knownFlags != 0 {
		return fmt.Errorf("connection message with flags %#x: %w", byte(flags), ucs.ErrInvalid)
	}
	*n = connMsg{
		from: n.from,
		msg: machine.Msg{
			Kind: machine.MsgKind(b[connMsgOffKind]), Worker: [16]byte(b[connMsgOffWorker:connMsgOffFrom]),
			From: le.Uint64(b[connMsgOffFrom:]), To: le.Uint64(b[connMsgOffTo:]),
			Pair: machine.PairID(le.Uint32(b[connMsgOffPair:])), Old: machine.PairID(le.Uint32(b[connMsgOffOld:])),
			Resume: flags&flagResume != 0, Closing: flags&flagClosing != 0,
		},
		flags:  flags &^ (flagResume | flagClosing),
		qpInfo: qpInfo{verbs.QPN(le.Uint32(b[connMsgOffQPN:])), verbs.PSN(le.Uint32(b[connMsgOffPSN:]))},
	}
	if n.has(flagAccessError) && (n.msg.Kind != machine.MsgReset || n.msg.To == 0) {
		return fmt.Errorf("connection message of kind %v for a refused access: %w", n.msg.Kind, ucs.ErrInvalid)
	}
	if n.msg.From == 0 || n.qpInfo.qpn > verbs.MulticastQPN || n.qpInfo.psn >= 1<<24 {
		return fmt.Errorf("connection message of connection %d with queue pair %#x: %w", n.msg.From, uint32(n.qpInfo.qpn), ucs.ErrInvalid)
	}
	if n.msg.Kind == machine.MsgReject {
		n.refused, n.qpInfo.qpn = protocol.Features(n.qpInfo.qpn), 0
	}
	return nil
}
