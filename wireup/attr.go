package wireup

import (
	"encoding/binary"

	"github.com/goucx/goucx/uct"
)

// Features are properties of an iface that its peers have to know.
type Features uint8

// Features in an address.
const (
	// DeviceAtomics: atomics on its memory are carried out by the device.
	DeviceAtomics Features = 1 << iota
	// PeerFailure: it notices when a peer dies.
	PeerFailure
	// ConnectsEndpoints: connections need an exchange of endpoint addresses.
	ConnectsEndpoints
)

// Attr is the part of an iface's attributes that travels in an address.
type Attr struct {
	// Latency and Overhead in nanoseconds.
	Latency, Overhead Quantity
	// Bandwidth, dedicated plus shared, in 10^6 bytes per second.
	Bandwidth Quantity
	Features  Features
	Ops       uct.Ops
}

const attrLen = 8

// AttrOf quantises a.
func AttrOf(a *uct.IfaceAttr) Attr {
	q := Attr{
		Latency:   Quantize(a.Est.LatencyNS, nanosecond),
		Overhead:  Quantize(a.Est.OverheadNS, nanosecond),
		Bandwidth: Quantize(a.Est.Dedicated+a.Est.Shared, megabyte),
		Ops:       a.Ops,
	}
	if a.DeviceAtomics {
		q.Features |= DeviceAtomics
	}
	if a.PeerFailure {
		q.Features |= PeerFailure
	}
	if a.Connect == uct.ConnectToEndpoint {
		q.Features |= ConnectsEndpoints
	}
	return q
}

func (a Attr) append(b []byte) []byte {
	b = append(b, byte(a.Latency), byte(a.Overhead), byte(a.Bandwidth), byte(a.Features))
	return binary.LittleEndian.AppendUint32(b, uint32(a.Ops))
}

// parseAttr reads an Attr; b holds at least attrLen bytes.
func parseAttr(b []byte) Attr {
	return Attr{
		Latency:   Quantity(b[0]),
		Overhead:  Quantity(b[1]),
		Bandwidth: Quantity(b[2]),
		Features:  Features(b[3]),
		Ops:       uct.Ops(binary.LittleEndian.Uint32(b[4:])),
	}
}
