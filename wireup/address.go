package wireup

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/uct"
)

// MaxAddress is the maximum length of a worker address in bytes.
const MaxAddress = 2048

// Offsets and lengths of the fixed part of an address and of each entry. docs/wire/address.md
// shows the whole format.
const (
	addressMagic = "GXWA"

	offVersion  = 4
	offFeatures = 5
	offLength   = 6
	offHost     = 8
	offProcess  = 24
	offWorker   = 40
	offContext  = 56
	headerLen   = 60
	crcLen      = 4

	entryHeadLen = 5           // transport, device, length
	entryMinLen  = attrLen + 1 // attributes, length of the device part
	maxPart      = 255         // maximum length in bytes of either part of a uct.Address
)

// addressFormat is the format of worker addresses, and of all messages of package ucp.
var addressFormat = protocol.Format{Name: "worker address", Version: 2, Features: [8]string{0: "threads", 4: "abort"}}

// FeatureThread is a required feature bit of the address that a Thread of a worker sends to its peer: the worker's
// address follows. No program passes such an address on.
const FeatureThread protocol.Features = 1 << 0

// FeatureAbort is an optional feature bit of a worker address: the worker reads the messages by which
// a peer aborts an endpoint.
const FeatureAbort protocol.Features = 1 << 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// View is a decoded worker address: the identity of the worker and the ifaces that reach it.
type View struct {
	// Host is equal for workers that may share memory. Process is equal for the workers of one
	// process. Worker is unique.
	Host, Process, Worker uct.UUID
	// Context numbers the worker's context within its process. Packed keys contain it.
	Context uint32
	// Features are the feature bits of the address. Optional ones may be unknown to this program.
	Features protocol.Features
	Entries  []Entry
}

// ContextID identifies a context among those of all processes.
type ContextID struct {
	Process uct.UUID
	Context uint32
}

// String returns the form used in errors and displays.
func (c ContextID) String() string {
	return fmt.Sprintf("context %d of process %x", c.Context, c.Process[:4])
}

// Owner returns the ID of the worker's context.
func (v View) Owner() ContextID { return ContextID{v.Process, v.Context} }

// Entry is one iface of a worker.
type Entry struct {
	Transport uct.TransportID
	// Device numbers the memory domain within the worker's context, and thereby the device. Packed
	// keys contain it. Entries with the same number share the domain.
	Device uint8
	Attr   Attr
	Addr   uct.Address
}

// Append appends the encoded address to b. It returns b unchanged and an error when an address
// part is longer than 255 bytes or the address is longer than [MaxAddress].
func (v View) Append(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, addressMagic...)
	b = append(b, addressFormat.Version, byte(v.Features), 0, 0)
	b = append(b, v.Host[:]...)
	b = append(b, v.Process[:]...)
	b = append(b, v.Worker[:]...)
	b = binary.LittleEndian.AppendUint32(b, v.Context)
	for _, e := range v.Entries {
		if len(e.Addr.Device) > maxPart || len(e.Addr.Iface) > maxPart {
			return b[:start], fmt.Errorf("worker address: transport %d: address parts of %d and %d bytes, at most %d each",
				e.Transport, len(e.Addr.Device), len(e.Addr.Iface), maxPart)
		}
		b = e.append(b)
	}
	n := len(b) - start + crcLen
	if n > MaxAddress {
		return b[:start], fmt.Errorf("worker address: %d bytes for %d ifaces, at most %d", n, len(v.Entries), MaxAddress)
	}
	binary.LittleEndian.PutUint16(b[start+offLength:], uint16(n))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli)), nil
}

// SplitSender splits what a peer sends as its address: its own, and if it is a Thread, that of its
// worker. It checks neither; worker is nil for a worker itself.
func SplitSender(b []byte) (own, worker []byte) {
	if len(b) < headerLen || protocol.Features(b[offFeatures])&FeatureThread == 0 {
		return b, nil
	}
	n := min(int(binary.LittleEndian.Uint16(b[offLength:])), len(b))
	return b[:n], b[n:]
}

func (e Entry) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(e.Transport))
	b = append(b, e.Device)
	b = binary.LittleEndian.AppendUint16(b, uint16(entryMinLen+len(e.Addr.Device)+len(e.Addr.Iface)))
	b = e.Attr.append(b)
	b = append(b, byte(len(e.Addr.Device)))
	b = append(b, e.Addr.Device...)
	return append(b, e.Addr.Iface...)
}
