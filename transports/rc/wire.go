package rc

import (
	"github.com/goucx/goucx/transports/internal/nic"
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
	name   ifaceName
	worker uct.UUID
	// qpn and qkey are of the queue pair for connection messages.
	qpn  verbs.QPN
	qkey uint32
	// seg is the length of its receives.
	seg uint32
}

// peerAt is the interface at an address.
func peerAt(a *nic.Address) peer {
	return peer{ifaceAddress{name: a.Name(), worker: a.Worker, qpn: a.QPN, qkey: a.QKey(), seg: a.Seg}, a.Port}
}

// address is the reverse of peerAt.
func (p *peer) address() nic.Address {
	return nic.Address{Port: p.port, Seg: p.iface.seg, Worker: p.iface.worker, QPN: p.iface.qpn}
}

// parse reads both parts of an address. The error names what is wrong.
func (p *peer) parse(u uct.Address) error {
	var a nic.Address
	if err := a.Parse(u); err != nil {
		return err
	}
	*p = peerAt(&a)
	return nil
}
