package wireup

import (
	"bytes"
	"slices"

	"github.com/goucx/goucx/uct"
)

// LocalIface is one of a worker's own ifaces.
type LocalIface struct {
	Info uct.IfaceInfo
	Attr *uct.IfaceAttr
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
// of its ifaces in their order. id.Entries is ignored. Ifaces of one kind whose
// device addresses are equal count as one device.
func Build(id View, ifaces []LocalIface) ([]byte, error) {
	id.Entries = make([]Entry, len(ifaces))
	devices := deviceNumbers(ifaces)
	for i, l := range ifaces {
		id.Entries[i] = Entry{
			Transport: l.Info.ID,
			Device:    uint8(devices[i]), // MaxAddress bounds their number
			Attr:      AttrOf(l.Attr),
			Addr:      uct.Address{Device: l.Iface.DeviceAddress(nil), Iface: l.Iface.Address(nil)},
		}
	}
	return id.Append(nil)
}

// deviceNumbers numbers the devices of ifaces in the order in which they first
// come.
func deviceNumbers(ifaces []LocalIface) []int {
	numbers := make([]int, len(ifaces))
	var devices []device
	for i, l := range ifaces {
		d := device{l.Info.Kind, l.Iface.DeviceAddress(nil)}
		numbers[i] = slices.IndexFunc(devices, d.equal)
		if numbers[i] < 0 {
			numbers[i] = len(devices)
			devices = append(devices, d)
		}
	}
	return numbers
}

type device struct {
	kind uct.DeviceKind
	addr []byte
}

func (d device) equal(o device) bool { return d.kind == o.kind && bytes.Equal(d.addr, o.addr) }
