package rc

import (
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// What stands before the payload of each message, little-endian; docs/wire/rc.md:
//
//	0 header u64 | 8 id u8 | 9 0 [7]
const (
	headLen = 16
	offID   = 8
)

// Ids of messages between the two ends of a connection; header says more.
const (
	// idMarker: what follows is in the pair that header names.
	idMarker = uct.NumAMIDs + iota
	// idHangUp: the sender closed its interface.
	idHangUp
)

// ifaceName identifies an interface among all.
type ifaceName [16]byte

// ifaceAddress is how an interface is found on its port.
type ifaceAddress struct {
	name ifaceName
	// qpn and qkey are of the queue pair for connection messages.
	qpn  verbs.QPN
	qkey uint32
	// seg is the length of its receives.
	seg uint32
}

// Layout of an interface's address, little-endian; docs/wire/rc.md.
const (
	addrVersion  = 1
	addrOffQPN   = 4
	addrOffQKey  = 8
	addrOffSeg   = 12
	addrOffName  = 16
	addrOffSum   = 32
	ifaceAddrLen = 36
)

func (a *ifaceAddress) append(b []byte) []byte {
	start, le := len(b), binary.LittleEndian
	b = append(b, addrVersion, 0, 0, 0)
	b = le.AppendUint32(b, uint32(a.qpn))
	b = le.AppendUint32(b, a.qkey)
	b = le.AppendUint32(b, a.seg)
	b = append(b, a.name[:]...)
	return nic.AppendSum(b, start)
}

// parse reads an address, which must be exactly that long. The error names what
// is wrong.
func (a *ifaceAddress) parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) != ifaceAddrLen {
		return fmt.Errorf("damaged address: rc part of %d bytes, want %d", len(b), ifaceAddrLen)
	}
	if err := nic.CheckSum(b); err != nil {
		return fmt.Errorf("damaged address: rc part: %w", err)
	}
	if b[0] != addrVersion {
		return fmt.Errorf("peer's rc address has version %d, ours %d", b[0], addrVersion)
	}
	*a = ifaceAddress{
		qpn: verbs.QPN(le.Uint32(b[addrOffQPN:])), qkey: le.Uint32(b[addrOffQKey:]), seg: le.Uint32(b[addrOffSeg:]),
		name: ifaceName(b[addrOffName:addrOffSum]),
	}
	if a.qpn > verbs.MulticastQPN {
		return fmt.Errorf("peer's rc address: queue pair %#x: %w", uint32(a.qpn), ucs.ErrInvalid)
	}
	return nil
}
