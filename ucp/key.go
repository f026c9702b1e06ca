package ucp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// Key is a packed remote key: plain bytes that a program passes to a peer, which
// unpacks them with [Endpoint.UnpackKey]. docs/wire/key.md specifies the format. A
// checksum detects damage.
type Key []byte

// String describes the memory of the key, for logs.
func (k Key) String() string {
	v, err := parseKey(k)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("key to %d bytes at %#x of %v", v.len, v.base, v.owner)
}

// errKey is wrapped by every error of a malformed key, in addition to ErrInvalid.
var errKey = errors.New("bad remote key")

const (
	keyMagic   = "GXRK"
	keyVersion = 2

	keyOffVersion     = 4
	keyOffFlags       = 5
	keyOffLength      = 6
	keyOffBase        = 8
	keyOffLen         = 16
	keyOffAccess      = 24
	keyOffProcess     = 28
	keyOffContext     = 44
	keyHeaderLen      = 48
	keyEntryHeaderLen = 5 // transport, domain, length
	keyCRCLen         = 4

	// maxKeyLen is the maximum length of a packed key in bytes.
	maxKeyLen = 2048
)

// keyFlags are properties of the memory, set by its owner.
type keyFlags uint8

// keyDeviceAtomics: the device carries out the atomics on this memory. Atomics by other
// means would not be atomic with them.
const keyDeviceAtomics keyFlags = 1 << 0

const keyKnownFlags = keyDeviceAtomics

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// keyView is a decoded key.
type keyView struct {
	base, len uint64 // address in the owner's process, bytes; base+len does not overflow
	access    uct.MemFlags
	flags     keyFlags
	owner     wireup.ContextID
	entries   []keyEntry
}

// keyEntry is the key of one of the owner's domains.
type keyEntry struct {
	transport uct.TransportID
	domain    uint8 // index among the owner's domains: Entry.Device in its workers' addresses
	key       []byte
}

// keyEmulated is the transport id of the entry for emulated operations, which the
// owner's workers carry out. The key of this entry is an emulKey.
const keyEmulated uct.TransportID = 0

func (k emulKey) entry() keyEntry {
	return keyEntry{keyEmulated, 0, binary.LittleEndian.AppendUint64(nil, uint64(k))}
}

// emulKey returns the emulKey of v, 0 if v has none.
func (v keyView) emulKey() emulKey {
	for _, e := range v.entries {
		if e.transport == keyEmulated && len(e.key) == 8 {
			return emulKey(binary.LittleEndian.Uint64(e.key))
		}
	}
	return 0
}

// append appends the packed key to b. On error it returns b unchanged.
func (v keyView) append(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, keyMagic...)
	b = append(b, keyVersion, byte(v.flags), 0, 0)
	b = binary.LittleEndian.AppendUint64(b, v.base)
	b = binary.LittleEndian.AppendUint64(b, v.len)
	b = binary.LittleEndian.AppendUint32(b, uint32(v.access))
	b = append(b, v.owner.Process[:]...)
	b = binary.LittleEndian.AppendUint32(b, v.owner.Context)
	for _, e := range v.entries {
		b = binary.LittleEndian.AppendUint16(b, uint16(e.transport))
		b = append(b, e.domain)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(e.key)))
		b = append(b, e.key...)
	}
	n := len(b) - start + keyCRCLen
	if n > maxKeyLen {
		return b[:start], fmt.Errorf("pack key: %d bytes for %d domains, at most %d: %w", n, len(v.entries), maxKeyLen, ErrTooLong)
	}
	binary.LittleEndian.PutUint16(b[start+keyOffLength:], uint16(n))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli)), nil
}

// parseKey validates and decodes a packed key. The entries refer to b.
func parseKey(b []byte) (keyView, error) {
	if err := checkKey(b); err != nil {
		return keyView{}, err
	}
	v := keyView{
		base:   binary.LittleEndian.Uint64(b[keyOffBase:]),
		len:    binary.LittleEndian.Uint64(b[keyOffLen:]),
		access: uct.MemFlags(binary.LittleEndian.Uint32(b[keyOffAccess:])),
		flags:  keyFlags(b[keyOffFlags]),
		owner: wireup.ContextID{
			Process: uct.UUID(b[keyOffProcess:keyOffContext]), Context: binary.LittleEndian.Uint32(b[keyOffContext:]),
		},
	}
	if v.base+v.len < v.base {
		return keyView{}, badKey("%d bytes at %#x pass the end of the address space", v.len, v.base)
	}
	for rest := b[keyHeaderLen : len(b)-keyCRCLen]; len(rest) > 0; {
		e, n, err := parseKeyEntry(rest)
		if err != nil {
			return keyView{}, err
		}
		v.entries = append(v.entries, e)
		rest = rest[n:]
	}
	return v, nil
}

func checkKey(b []byte) error {
	switch {
	case len(b) < keyHeaderLen+keyCRCLen:
		return badKey("%d bytes, at least %d", len(b), keyHeaderLen+keyCRCLen)
	case string(b[:len(keyMagic)]) != keyMagic:
		return badKey("starts with %q, not %q", b[:len(keyMagic)], keyMagic)
	case b[keyOffVersion] != keyVersion:
		return badKey("version %d, this program knows %d", b[keyOffVersion], keyVersion)
	case keyFlags(b[keyOffFlags])&^keyKnownFlags != 0:
		return badKey("unknown flags %#02x", b[keyOffFlags])
	case len(b) > maxKeyLen:
		return badKey("%d bytes, at most %d", len(b), maxKeyLen)
	}
	if n := int(binary.LittleEndian.Uint16(b[keyOffLength:])); n != len(b) {
		return badKey("length field %d, but %d bytes: truncated or concatenated", n, len(b))
	}
	sum := binary.LittleEndian.Uint32(b[len(b)-keyCRCLen:])
	if got := crc32.Checksum(b[:len(b)-keyCRCLen], castagnoli); got != sum {
		return badKey("checksum %#08x, computed %#08x: damaged", sum, got)
	}
	return nil
}

// parseKeyEntry decodes the first entry of b and returns its length.
func parseKeyEntry(b []byte) (keyEntry, int, error) {
	if len(b) < keyEntryHeaderLen {
		return keyEntry{}, 0, badKey("%d bytes left for an entry of at least %d", len(b), keyEntryHeaderLen)
	}
	end := keyEntryHeaderLen + int(binary.LittleEndian.Uint16(b[3:]))
	if end > len(b) {
		return keyEntry{}, 0, badKey("an entry of %d bytes, %d left", end, len(b))
	}
	return keyEntry{
		transport: uct.TransportID(binary.LittleEndian.Uint16(b)),
		domain:    b[2],
		key:       b[keyEntryHeaderLen:end:end],
	}, end, nil
}

func badKey(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", errKey, fmt.Sprintf(format, args...), ErrInvalid)
}
