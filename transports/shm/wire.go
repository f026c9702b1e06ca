package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// Messages of a connection's socket, little-endian:
//
//	0  magic u32 | 4 version u16 | 6 kind u8 | 7 flags u8
//	8  name of the sender's iface [8]
//	16 slot u16 in the inbox page that comes with it | 18 reserved
//	20 cells u32 | 24 bulk u32 (bytes) of each direction
//	28 reason (refuse alone)
//
// hello carries the pair, the initiator's inbox page and its event descriptor;
// accept carries the acceptor's page and event descriptor.
const (
	helloMagic   = 0x78637567 // "gucx"
	helloVersion = 1
	helloLen     = 28
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
)

// flagFence: the sender cannot put a barrier into its peers (membarrier), so
// they must put one between storing a message and looking whether it sleeps.
const flagFence = 1

// ifaceName identifies an iface on its host: random, and part of its socket's name.
type ifaceName [8]byte

type hello struct {
	kind        kind
	flags       uint8
	name        ifaceName
	slot        uint16
	cells, bulk uint32
	reason      string
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
	return append(b, h.reason[:min(len(h.reason), maxReason)]...)
}

func parseHello(b []byte) (h hello, err error) {
	if len(b) < helloLen || len(b) > maxHello {
		return h, fmt.Errorf("connection message of %d bytes: %w", len(b), ucs.ErrInvalid)
	}
	if m := binary.LittleEndian.Uint32(b); m != helloMagic {
		return h, fmt.Errorf("connection message begins with %#x, not goucx's: %w", m, ucs.ErrInvalid)
	}
	if v := binary.LittleEndian.Uint16(b[4:]); v != helloVersion {
		return h, fmt.Errorf("peer speaks version %d of the shm connection, this side version %d: use one version of goucx on a host: %w", v, helloVersion, ucs.ErrUnsupported)
	}
	h = hello{
		kind:  kind(b[6]),
		flags: b[7],
		name:  ifaceName(b[8:16]),
		slot:  binary.LittleEndian.Uint16(b[16:]),
		cells: binary.LittleEndian.Uint32(b[20:]),
		bulk:  binary.LittleEndian.Uint32(b[24:]),
	}
	if h.kind < kindHello || h.kind > kindRefuse {
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
