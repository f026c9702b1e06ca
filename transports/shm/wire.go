package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup/machine"
)

// Messages of a connection's socket, little-endian:
//
//	0  magic u32 | 4 version u16 | 6 kind u8 | 7 flags u8
//	8  name of the sender's iface [8]
//	16 slot u16 in the inbox page that comes with it | 18 reserved
//	20 cells u32 | 24 bulk u32 (bytes) of each direction of the pair that comes with it
//	28 pair u32 | 32 old u32, as the sender names them (wireup/machine) | 36 reserved
//	40 the sender's worker UUID [16]
//	56 the sender's number of the connection u64
//	64 reason (refuse alone)
//
// hello carries the pair, the initiator's inbox page and its wake pipe;
// accept and yield carry the acceptor's page and wake pipe, accept also
// the pair named old where there is one; offer carries the pair.
const (
	helloMagic   = 0x78637567 // "gucx"
	helloVersion = 3
	helloLen     = 64
	maxReason    = 200
	maxHello     = helloLen + maxReason
)

type kind uint8

const (
	kindHello kind = iota + 1
	kindAccept
	// kindBye: the sender will not send by this connection any more.
	kindBye
	// kindByeAll: nor will it receive; it hangs up.
	kindByeAll
	// kindRefuse: the acceptor does not take the connection; a reason follows.
	kindRefuse
	// The rest is as in wireup/machine.
	kindYield
	kindOffer
	kindTake
	kindDecline
	kindNap
	kindAsleep
	kindStay
	numKinds
)

// kinds are the machine's words for them; bye-all and refuse are not among them.
var kinds = [numKinds]machine.Kind{
	kindHello: machine.Hello, kindAccept: machine.Accept, kindBye: machine.Bye, kindYield: machine.Yield,
	kindOffer: machine.Offer, kindTake: machine.Take, kindDecline: machine.Decline,
	kindNap: machine.Nap, kindAsleep: machine.Asleep, kindStay: machine.Stay,
}

// kindOf is the message that says k on the socket.
func kindOf(k machine.Kind) kind {
	for i, m := range kinds {
		if m == k {
			return kind(i)
		}
	}
	panic(fmt.Sprintf("shm: %v has no message", k))
}

const (
	// flagFence: the sender cannot put a barrier into its peers (membarrier), so
	// they must put one between storing a message and looking whether it sleeps.
	flagFence = 1 << iota
	// flagSeparate: the connection is one more beside another that is being made
	// from the same side: it stays by itself whatever the peer initiated.
	flagSeparate
	// flagResume and flagClosing are machine.Msg's.
	flagResume
	flagClosing
)

// ifaceName identifies an iface on its host: random, and part of its socket's name.
type ifaceName [8]byte

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

// carry takes over what the machine says.
func (h *hello) carry(m machine.Msg) {
	h.pair, h.old, h.worker, h.conn = m.Pair, m.Old, m.Worker, m.From
	if m.Resume {
		h.flags |= flagResume
	}
	if m.Closing {
		h.flags |= flagClosing
	}
}

// msg is what the machine hears.
func (h *hello) msg() machine.Msg {
	return machine.Msg{
		Kind: kinds[h.kind], Worker: h.worker, From: h.conn, Pair: h.pair, Old: h.old,
		Resume: h.flags&flagResume != 0, Closing: h.flags&flagClosing != 0,
	}
}

// descriptors is how many come with the message.
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
		return h, fmt.Errorf("connection message names inbox slot %d of %d: %w", h.slot, inboxSlots, ucs.ErrInvalid)
	}
	return h, nil
}
