package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup/machine"
)

// Messages on a connection's socket, little-endian:
//
//	0  magic u32 | 4 version u16 | 6 kind u8 | 7 flags u8
//	8  name of the sender's iface [8]
//	16 slot u16 in the sender's doorbell page | 18 reserved
//	20 cells u32 | 24 bulk u32 (bytes) of each ring of the ring pair in this message
//	28 pair u32 | 32 old u32: ids in the sender's numbering (wireup/machine) | 36 reserved
//	40 the sender's worker UUID [16]
//	56 the sender's connection id u64
//	64 reason (REJECT only)
//
// Descriptors: OPEN carries the ring pair, the initiator's doorbell page and its wake
// pipe. ACCEPT and OPEN_CROSSED carry the acceptor's doorbell page and wake pipe; ACCEPT
// also carries ring pair old, if that is set. MIGRATE carries the ring pair.
const (
	helloMagic   = 0x78637567 // "gucx"
	helloVersion = 3
	helloLen     = 64
	maxReason    = 200
	maxHello     = helloLen + maxReason
)

// kind is the type of a message.
type kind uint8

const (
	kindHello kind = iota + 1
	kindAccept
	// kindBye is CLOSE: the sender sends no more on this connection.
	kindBye
	// kindByeAll is SHUTDOWN: the sender closes its worker and disconnects.
	kindByeAll
	// kindRefuse is REJECT: the acceptor rejects the connection; a reason follows.
	kindRefuse
	// The other kinds are those of wireup/machine.
	kindYield
	kindOffer
	kindTake
	kindDecline
	kindNap
	kindAsleep
	kindStay
	numKinds
)

// kinds maps kinds to the machine's. SHUTDOWN and REJECT have no machine message.
var kinds = [numKinds]machine.MsgKind{
	kindHello: machine.MsgOpen, kindAccept: machine.MsgAccept, kindBye: machine.MsgClose, kindYield: machine.MsgOpenCrossed,
	kindOffer: machine.MsgMigrate, kindTake: machine.MsgMigrateAck, kindDecline: machine.MsgMigrateNak,
	kindNap: machine.MsgSuspend, kindAsleep: machine.MsgSuspendAck, kindStay: machine.MsgSuspendNak,
}

// kindOf returns the kind that carries machine message k.
func kindOf(k machine.MsgKind) kind {
	for i, m := range kinds {
		if m == k {
			return kind(i)
		}
	}
	panic(fmt.Sprintf("shm: %v has no message", k))
}

const (
	// flagFence: the sender cannot issue a barrier in its peers (membarrier). A peer
	// must issue one between its store of a message and its load of the armed word.
	flagFence = 1 << iota
	// flagSeparate: this connection never crosses with a connect of the peer. Another
	// connection of the sender to this peer is opening or closing.
	flagSeparate
	// flagResume and flagClosing are the flags of machine.Msg.
	flagResume
	flagClosing
)

// ifaceName identifies an iface on its host. It is random and part of its socket name.
type ifaceName [8]byte

// hello is a message on a connection's socket, of any kind. The fields are those above;
// pair, old, worker and conn carry the machine's part.
type hello struct {
	kind        kind
	flags       uint8
	name        ifaceName
	slot        uint16
	cells, bulk uint32
	pair, old   machine.PairID
	worker      [16]byte
	conn        uint64
	reason      string
}

// carry stores machine message m in h.
func (h *hello) carry(m machine.Msg) {
	h.pair, h.old, h.worker, h.conn = m.Pair, m.Old, m.Worker, m.From
	if m.Resume {
		h.flags |= flagResume
	}
	if m.Closing {
		h.flags |= flagClosing
	}
}

// msg returns the machine message in h.
func (h *hello) msg() machine.Msg {
	return machine.Msg{
		Kind: kinds[h.kind], Worker: h.worker, From: h.conn, Pair: h.pair, Old: h.old,
		Resume: h.flags&flagResume != 0, Closing: h.flags&flagClosing != 0,
	}
}

// descriptors returns the number of descriptors that accompany the message.
func (h *hello) descriptors() int {
	switch {
	case h.kind == kindHello, h.kind == kindAccept && h.old != machine.None:
		return 3
	case h.kind == kindAccept, h.kind == kindYield:
		return 2
	case h.kind == kindOffer:
		return 1
	}
	return 0
}

func (h *hello) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, helloMagic)
	b = binary.LittleEndian.AppendUint16(b, helloVersion)
	b = append(b, byte(h.kind), h.flags)
	b = append(b, h.name[:]...)
	b = binary.LittleEndian.AppendUint16(b, h.slot)
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, h.cells)
	b = binary.LittleEndian.AppendUint32(b, h.bulk)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.pair))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.old))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(b, h.worker[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.conn)
	return append(b, h.reason[:min(len(h.reason), maxReason)]...)
}

// parseHello decodes and validates a message, except for the geometry of its ring pair.
func parseHello(b []byte) (h hello, err error) {
	if len(b) < 8 || len(b) > maxHello {
		return h, fmt.Errorf("connection message of %d bytes: %w", len(b), ucs.ErrInvalid)
	}
	if m := binary.LittleEndian.Uint32(b); m != helloMagic {
		return h, fmt.Errorf("connection message begins with %#x, not goucx's: %w", m, ucs.ErrInvalid)
	}
	if v := binary.LittleEndian.Uint16(b[4:]); v != helloVersion {
		return h, fmt.Errorf("peer speaks version %d of the shm connection, this side version %d: use one version of goucx on a host: %w", v, helloVersion, ucs.ErrUnsupported)
	}
	if len(b) < helloLen {
		return h, fmt.Errorf("connection message of %d bytes: %w", len(b), ucs.ErrInvalid)
	}
	h = hello{
		kind:   kind(b[6]),
		flags:  b[7],
		name:   ifaceName(b[8:16]),
		slot:   binary.LittleEndian.Uint16(b[16:]),
		cells:  binary.LittleEndian.Uint32(b[20:]),
		bulk:   binary.LittleEndian.Uint32(b[24:]),
		pair:   machine.PairID(binary.LittleEndian.Uint32(b[28:])),
		old:    machine.PairID(binary.LittleEndian.Uint32(b[32:])),
		worker: [16]byte(b[40:56]),
		conn:   binary.LittleEndian.Uint64(b[56:]),
	}
	if h.kind < kindHello || h.kind >= numKinds {
		return h, fmt.Errorf("connection message of unknown kind %d: %w", h.kind, ucs.ErrInvalid)
	}
	if h.kind == kindRefuse {
		h.reason = string(b[helloLen:])
	} else if len(b) != helloLen {
		return h, fmt.Errorf("connection message of %d bytes, want %d: %w", len(b), helloLen, ucs.ErrInvalid)
	}
	if h.slot >= inboxSlots {
		return h, fmt.Errorf("connection message names doorbell slot %d of %d: %w", h.slot, inboxSlots, ucs.ErrInvalid)
	}
	return h, nil
}
