package rc

import (
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
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
