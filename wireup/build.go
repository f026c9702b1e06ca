package wireup

import (
	"fmt"

	"github.com/goucx/goucx/uct"
)

// LocalIface is an iface of the local worker.
type LocalIface struct {
	Info uct.IfaceInfo
	Attr *uct.IfaceAttr
	// Domain numbers the iface's memory domain among all domains of the context, across
	// transports. Packed keys contain it.
	Domain int
	// Iface reports which addresses are reachable; [uct.Iface] implements it.
	Iface Reacher
}

// Reacher is the part of [uct.Iface] that address encoding and lane selection use.
type Reacher interface {
	DeviceAddress(b []byte) []byte
	Address(b []byte) []byte
	Reachable(a uct.Address) (bool, string)
}

// Build returns the address of the worker that id describes, with one entry for each of its
// ifaces, in their order. It ignores id.Entries. An iface whose entry does not fit is omitted and
// listed in refused; peers cannot reach it.
func Build(id View, ifaces []LocalIface) (addr []byte, refused []uct.Refusal, err error) {
	id.Entries = make([]Entry, 0, len(ifaces))
	room := MaxAddress - headerLen - crcLen
	for _, l := range ifaces {
		e := Entry{
			Transport: l.Info.ID,
			Device:    uint8(l.Domain), // MaxAddress bounds their number
			Attr:      AttrOf(l.Attr),
			Addr:      uct.Address{Device: l.Iface.DeviceAddress(nil), Iface: l.Iface.Address(nil)},
		}
		n := entryHeadLen + entryMinLen + len(e.Addr.Device) + len(e.Addr.Iface)
		if n > room {
			refused = append(refused, uct.Refusal{
				Transport: l.Info.Transport, Device: l.Info.Device,
				Reason: fmt.Sprintf("the worker's address has no room for its %d bytes; UCX_NET_DEVICES leaves others out", n),
			})
			continue
		}
		room -= n
		id.Entries = append(id.Entries, e)
	}
	addr, err = id.Append(nil)
	return addr, refused, err
}
