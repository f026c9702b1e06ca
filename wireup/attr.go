package wireup

import (
	"encoding/binary"

	"github.com/goucx/goucx/uct"
)

// Features is a set of iface properties that peers need to know.
type Features uint8

// Features in an address.
const (
	// DeviceAtomics: the device executes atomics on the iface's memory.
	DeviceAtomics Features = 1 << iota
	// PeerFailure: the iface detects the death of a peer.
	PeerFailure
	// ConnectsEndpoints: connecting requires an exchange of endpoint addresses.
	ConnectsEndpoints
)

// Attr is the part of an iface's attributes that an address contains.
type Attr struct {
	// Latency and Overhead are in nanoseconds.
	Latency, Overhead Quantity
	// Bandwidth is dedicated plus shared, in 10^6 bytes per second.
	Bandwidth Quantity
	Features  Features
	Ops       uct.Ops
}

const attrLen = 8

// AttrOf returns the quantized attributes of a.
func AttrOf(a *uct.IfaceAttr) Attr {
	q := Attr{
		Latency:   Quantize(a.Estimate.LatencyNS, nanosecond),
		Overhead:  Quantize(a.Estimate.OverheadNS, nanosecond),
		Bandwidth: Quantize(a.Estimate.Dedicated+a.Estimate.Shared, megabyte),
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

// parseAttr decodes an Attr; b holds at least attrLen bytes.
func parseAttr(b []byte) Attr {
	return Attr{
		Latency:   Quantity(b[0]),
		Overhead:  Quantity(b[1]),
		Bandwidth: Quantity(b[2]),
		Features:  Features(b[3]),
		Ops:       uct.Ops(binary.LittleEndian.Uint32(b[4:])),
	}
}
