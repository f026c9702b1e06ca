// Package keycodec packs and parses remote keys. docs/wire/key.md specifies the format. Package ucp
// resolves the entries. A parsed key is complete and within its bounds; the bytes may come from
// any peer.
package keycodec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// errMalformed is wrapped by every error of [Parse], in addition to ucs.ErrInvalid.
var errMalformed = errors.New("bad remote key")

const (
	magic = "GXRK"

	offVersion     = 4
	offFeatures    = 5
	offLength      = 6
	offBase        = 8
	offLen         = 16
	offAccess      = 24
	offProcess     = 28
	offContext     = 44
	headerLen      = 48
	entryHeaderLen = 5 // transport, domain, length
	crcLen         = 4

	// MaxLen is the maximum length of a packed key in bytes.
	MaxLen = 2048
)

// DeviceAtomics is a required feature bit: the device carries out the atomics on this memory.
// Atomics by other means would not be atomic with them.
const DeviceAtomics protocol.Features = 1 << 0

var format = protocol.Format{Name: "remote key", Version: 2, Features: [8]string{0: "device atomics"}}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// View is a decoded key.
type View struct {
	Base, Len uint64 // address in the owner's process, bytes; base+len does not overflow
	Access    uct.MemFlags
	Features  protocol.Features
	Owner     wireup.ContextID
	Entries   []Entry
}

// Entry is the key of one of the owner's domains.
type Entry struct {
	Transport uct.TransportID
	Domain    uint8 // index among the owner's domains: Entry.Device in its workers' addresses
	Key       []byte
}

// Emulated is the transport id of the entry for emulated operations, which the
// owner's workers carry out.
const Emulated uct.TransportID = 0

// EmulKey returns the key of the entry for emulated operations, 0 if v has none.
func (v View) EmulKey() uint64 {
	for _, e := range v.Entries {
		if e.Transport == Emulated && len(e.Key) == 8 {
			return binary.LittleEndian.Uint64(e.Key)
		}
	}
	return 0
}

// Append appends the packed key to b. On error it returns b unchanged.
func (v View) Append(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, magic...)
	b = append(b, format.Version, byte(v.Features), 0, 0)
	b = binary.LittleEndian.AppendUint64(b, v.Base)
	b = binary.LittleEndian.AppendUint64(b, v.Len)
	b = binary.LittleEndian.AppendUint32(b, uint32(v.Access))
	b = append(b, v.Owner.Process[:]...)
	b = binary.LittleEndian.AppendUint32(b, v.Owner.Context)
	for _, e := range v.Entries {
		b = binary.LittleEndian.AppendUint16(b, uint16(e.Transport))
		b = append(b, e.Domain)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(e.Key)))
		b = append(b, e.Key...)
	}
	n := len(b) - start + crcLen
	if n > MaxLen {
		return b[:start], fmt.Errorf("pack key: %d bytes for %d domains, at most %d: %w", n, len(v.Entries), MaxLen, ucs.ErrTooLong)
	}
	binary.LittleEndian.PutUint16(b[start+offLength:], uint16(n))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli)), nil
}

// Parse validates and decodes a packed key. The entries refer to b.
//
// Errors wrap [ucs.ErrInvalid], and a [protocol.Error] if the key is of another version, or
// requires a feature that this program does not know.
func Parse(b []byte) (View, error) {
	if err := check(b); err != nil {
		return View{}, err
	}
	v := View{
		Base:     binary.LittleEndian.Uint64(b[offBase:]),
		Len:      binary.LittleEndian.Uint64(b[offLen:]),
		Access:   uct.MemFlags(binary.LittleEndian.Uint32(b[offAccess:])),
		Features: protocol.Features(b[offFeatures]),
		Owner: wireup.ContextID{
			Process: uct.UUID(b[offProcess:offContext]), Context: binary.LittleEndian.Uint32(b[offContext:]),
		},
	}
	if v.Base+v.Len < v.Base {
		return View{}, malformed("%d bytes at %#x pass the end of the address space", v.Len, v.Base)
	}
	for rest := b[headerLen : len(b)-crcLen]; len(rest) > 0; {
		e, n, err := parseEntry(rest)
		if err != nil {
			return View{}, err
		}
		v.Entries = append(v.Entries, e)
		rest = rest[n:]
	}
	return v, nil
}

func check(b []byte) error {
	switch {
	case len(b) <= offFeatures:
		return malformed("%d bytes, at least %d", len(b), headerLen+crcLen)
	case string(b[:len(magic)]) != magic:
		return malformed("starts with %q, not %q", b[:len(magic)], magic)
	}
	if err := format.Check(b[offVersion], protocol.Features(b[offFeatures])); err != nil {
		return fmt.Errorf("%w: %w: %w", errMalformed, err, ucs.ErrInvalid)
	}
	switch {
	case len(b) < headerLen+crcLen:
		return malformed("%d bytes, at least %d", len(b), headerLen+crcLen)
	case len(b) > MaxLen:
		return malformed("%d bytes, at most %d", len(b), MaxLen)
	}
	if n := int(binary.LittleEndian.Uint16(b[offLength:])); n != len(b) {
		return malformed("length field %d, but %d bytes: truncated or concatenated", n, len(b))
	}
	sum := binary.LittleEndian.Uint32(b[len(b)-crcLen:])
	if got := crc32.Checksum(b[:len(b)-crcLen], castagnoli); got != sum {
		return malformed("checksum %#08x, computed %#08x: damaged", sum, got)
	}
	return nil
}

// parseEntry decodes the first entry of b and returns its length.
func parseEntry(b []byte) (Entry, int, error) {
	if len(b) < entryHeaderLen {
		return Entry{}, 0, malformed("%d bytes left for an entry of at least %d", len(b), entryHeaderLen)
	}
	end := entryHeaderLen + int(binary.LittleEndian.Uint16(b[3:]))
	if end > len(b) {
		return Entry{}, 0, malformed("an entry of %d bytes, %d left", end, len(b))
	}
	return Entry{
		Transport: uct.TransportID(binary.LittleEndian.Uint16(b)),
		Domain:    b[2],
		Key:       b[entryHeaderLen:end:end],
	}, end, nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", errMalformed, fmt.Sprintf(format, args...), ucs.ErrInvalid)
}
