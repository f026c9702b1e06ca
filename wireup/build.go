package wireup

import "github.com/goucx/goucx/uct"

// LocalIface is one of a worker's own ifaces.
type LocalIface struct {
	Info uct.IfaceInfo
	Attr *uct.IfaceAttr
	// Domain numbers the memory domain that it belongs to among all of the
	// context, whatever their transports: packed keys name domains so.
	Domain int
	// Iface answers whether an address is reachable; [uct.Iface] fits.
	Iface Reacher
}

// Reacher is the part of [uct.Iface] that addresses and lane choice ask.
type Reacher interface {
	DeviceAddress(b []byte) []byte
	Address(b []byte) []byte
	Reachable(a uct.Address) (bool, string)
}

// Build gives the address of the worker that id names, with one entry for each
// of its ifaces in their order. id.Entries is ignored.
func Build(id View, ifaces []LocalIface) ([]byte, error) {
	id.Entries = make([]Entry, len(ifaces))
	for i, l := range ifaces {
		id.Entries[i] = Entry{
			Transport: l.Info.ID,
			Device:    uint8(l.Domain), // MaxAddress bounds their number
			Attr:      AttrOf(l.Attr),
			Addr:      uct.Address{Device: l.Iface.DeviceAddress(nil), Iface: l.Iface.Address(nil)},
		}
	}
	return id.Append(nil)
}
