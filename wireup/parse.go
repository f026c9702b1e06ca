package wireup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/uct"
)

// ErrAddress is wrapped by every error of a malformed worker address.
var ErrAddress = errors.New("bad worker address")

// Parse validates and decodes a worker address. The address parts of the result point into b.
// Entries of unknown transports are decoded like any other; no local iface matches them.
//
// Errors wrap [ErrAddress] and contain the reason. They wrap a [protocol.Error] too if the address is of
// another version, or requires a feature that this program does not know. Parse does not panic on
// any input.
func Parse(b []byte) (View, error) {
	n, err := check(b)
	if err != nil {
		return View{}, err
	}
	v := View{Entries: make([]Entry, 0, n)}
	copy(v.Host[:], b[offHost:])
	copy(v.Process[:], b[offProcess:])
	copy(v.Worker[:], b[offWorker:])
	v.Context = binary.LittleEndian.Uint32(b[offContext:])
	v.Features = protocol.Features(b[offFeatures])
	for rest := body(b); len(rest) > 0; {
		var e Entry
		e, rest = nextEntry(rest)
		v.Entries = append(v.Entries, e)
	}
	return v, nil
}

// body returns the entries of a checked address.
func body(b []byte) []byte { return b[headerLen : len(b)-crcLen] }

// check validates the address b and counts its entries. It allocates only on error.
func check(b []byte) (entries int, err error) {
	if err := checkHeader(b); err != nil {
		return 0, err
	}
	sum := binary.LittleEndian.Uint32(b[len(b)-crcLen:])
	if got := crc32.Checksum(b[:len(b)-crcLen], castagnoli); got != sum {
		return 0, badAddress("checksum %#08x, its bytes have %#08x: damaged", sum, got)
	}
	for rest := body(b); len(rest) > 0; entries++ {
		n := 0
		if n, err = entryLen(rest); err != nil {
			return 0, fmt.Errorf("%w (entry %d)", err, entries)
		}
		rest = rest[n:]
	}
	return entries, nil
}

func checkHeader(b []byte) error {
	switch {
	case len(b) <= offFeatures:
		return badAddress("%d bytes, at least %d", len(b), headerLen+crcLen)
	case string(b[:len(addressMagic)]) != addressMagic:
		return badAddress("starts with %q, not %q", b[:len(addressMagic)], addressMagic)
	}
	if err := addressFormat.Check(b[offVersion], protocol.Features(b[offFeatures])); err != nil {
		return fmt.Errorf("%w: %w", ErrAddress, err)
	}
	switch {
	case len(b) < headerLen+crcLen:
		return badAddress("%d bytes, at least %d", len(b), headerLen+crcLen)
	case len(b) > MaxAddress:
		return badAddress("%d bytes, at most %d", len(b), MaxAddress)
	}
	if n := int(binary.LittleEndian.Uint16(b[offLength:])); n != len(b) {
		return badAddress("length field %d, but %d bytes: truncated or joined", n, len(b))
	}
	return nil
}

// entryLen returns the length of the first entry of b, which must not be empty.
func entryLen(b []byte) (int, error) {
	if len(b) < entryHeadLen {
		return 0, badAddress("%d bytes left for an entry of at least %d", len(b), entryHeadLen+entryMinLen)
	}
	n := int(binary.LittleEndian.Uint16(b[3:]))
	if n > len(b)-entryHeadLen {
		return 0, badAddress("an entry of %d bytes, %d left", n, len(b)-entryHeadLen)
	}
	if n < entryMinLen {
		return 0, badAddress("an entry of %d bytes, at least %d", n, entryMinLen)
	}
	device := int(b[entryHeadLen+attrLen])
	iface := n - entryMinLen - device
	if iface < 0 || iface > maxPart {
		return 0, badAddress("an entry of %d bytes whose device part has %d", n, device)
	}
	return entryHeadLen + n, nil
}

// nextEntry decodes the first entry of a checked body and returns the remaining bytes.
func nextEntry(b []byte) (Entry, []byte) {
	end := entryHeadLen + int(binary.LittleEndian.Uint16(b[3:]))
	at := entryHeadLen + entryMinLen
	iface := at + int(b[at-1])
	return Entry{
		Transport: uct.TransportID(binary.LittleEndian.Uint16(b)),
		Device:    b[2],
		Attr:      parseAttr(b[entryHeadLen:]),
		Addr:      uct.Address{Device: b[at:iface:iface], Iface: b[iface:end:end]},
	}, b[end:]
}

func badAddress(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrAddress, fmt.Sprintf(format, args...))
}
