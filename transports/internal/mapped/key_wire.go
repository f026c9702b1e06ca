package mapped

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/uct"
)

// Kind is the origin of a region's memory. In a packed key it is a required feature bit: a peer that
// does not know the kind cannot access the memory.
type Kind uint8

// Kinds. The values are part of the wire format.
const (
	// Allocated: memory of the domain, which peers map.
	Allocated Kind = 1 << 0
	// Registered: memory of the program.
	Registered Kind = 1 << 1
)

var keyFormat = protocol.Format{Name: "memory key of shm", Version: 1, Features: [8]string{0: "allocated memory", 1: "registered memory"}}

// String returns the name of the kind in lower case.
func (k Kind) String() string {
	switch k {
	case Allocated:
		return "allocated"
	case Registered:
		return "registered"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// PackedKey is the decoded form of a packed key: it describes a region to peers.
type PackedKey struct {
	Kind   Kind
	Flags  uct.MemFlags // those for peers
	Domain uct.UUID
	Slot   uint32
	// PID is the owner's process id in its own namespace, for error messages only.
	PID       uint32
	Gen       uint64
	Base, Len uint64
	// Socket is the socket at which the owner serves requests, at most MaxSocket bytes. If it
	// is "", only the owner's domain can unpack the key.
	Socket string
}

// Layout of a packed key, little-endian; docs/wire/shm-key.md.
const (
	keyMagic = 0x4b585547 // "GUXK"

	keyOffVersion  = 4
	keyOffFeatures = 5 // with the kind
	keyOffFlags    = 6
	keyOffSocket   = 7 // length of the socket name
	keyOffDomain   = 8
	keyOffSlot     = 24
	keyOffPID      = 28
	keyOffGen      = 32
	keyOffBase     = 40
	keyOffLen      = 48
	keyFixedLen    = 56
	keySumLen      = 4

	// MaxSocket is the maximum length of a Unix socket's name in the kernel.
	MaxSocket = 107
	// MaxKey is the maximum length of a packed key.
	MaxKey = keyFixedLen + MaxSocket + keySumLen
)

// KeyLen returns the length of a packed key with a socket name of n bytes.
func KeyLen(n int) int { return keyFixedLen + n + keySumLen }

// ErrKey: the bytes are not a key of this format, or are corrupted.
var ErrKey = errors.New("bad memory key")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// String describes the region for error messages.
func (p *PackedKey) String() string {
	return fmt.Sprintf("%v region of %d bytes at %#x of process %d", p.Kind, p.Len, p.Base, p.PID)
}

// Append appends the packed key to b.
func (p *PackedKey) Append(b []byte) []byte {
	start := len(b)
	le := binary.LittleEndian
	b = le.AppendUint32(b, keyMagic)
	b = append(b, keyFormat.Version, byte(p.Kind), byte(p.Flags), byte(len(p.Socket)))
	b = append(b, p.Domain[:]...)
	b = le.AppendUint32(b, p.Slot)
	b = le.AppendUint32(b, p.PID)
	b = le.AppendUint64(b, p.Gen)
	b = le.AppendUint64(b, p.Base)
	b = le.AppendUint64(b, p.Len)
	b = append(b, p.Socket...)
	return le.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// Parse decodes a packed key. b must be exactly the key. After an error p is undefined.
//
// Errors: ErrKey, with the invalid field, and a [protocol.Error].
func (p *PackedKey) Parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) <= keyOffFeatures {
		return fmt.Errorf("%w: %d bytes, want at least %d", ErrKey, len(b), keyFixedLen+keySumLen)
	}
	if m := le.Uint32(b); m != keyMagic {
		return fmt.Errorf("%w: magic %#x", ErrKey, m)
	}
	features := protocol.Features(b[keyOffFeatures])
	if err := keyFormat.Check(b[keyOffVersion], features); err != nil {
		return fmt.Errorf("%w: %w", ErrKey, err)
	}
	if len(b) < keyFixedLen+keySumLen {
		return fmt.Errorf("%w: %d bytes, want at least %d", ErrKey, len(b), keyFixedLen+keySumLen)
	}
	if n := KeyLen(int(b[keyOffSocket])); b[keyOffSocket] > MaxSocket || len(b) != n {
		return fmt.Errorf("%w: %d bytes, its fields need %d", ErrKey, len(b), n)
	}
	body := b[:len(b)-keySumLen]
	if got, want := crc32.Checksum(body, castagnoli), le.Uint32(b[len(body):]); got != want {
		return fmt.Errorf("%w: checksum %#x, want %#x", ErrKey, got, want)
	}
	*p = PackedKey{
		Kind: Kind(features & protocol.Required), Flags: uct.MemFlags(b[keyOffFlags]), Domain: uct.UUID(b[keyOffDomain:keyOffSlot]),
		Slot: le.Uint32(b[keyOffSlot:]), PID: le.Uint32(b[keyOffPID:]), Gen: le.Uint64(b[keyOffGen:]),
		Base: le.Uint64(b[keyOffBase:]), Len: le.Uint64(b[keyOffLen:]), Socket: string(body[keyFixedLen:]),
	}
	switch { // values that no owner packs, even with a valid checksum
	case p.Kind != Allocated && p.Kind != Registered:
		return fmt.Errorf("%w: %v", ErrKey, p.Kind)
	case p.Flags&^uct.MemRemote != 0:
		return fmt.Errorf("%w: flags %#x", ErrKey, uint32(p.Flags))
	case p.Gen == 0:
		return fmt.Errorf("%w: generation 0", ErrKey)
	case p.Len == 0 || p.Len > math.MaxInt || p.Base > math.MaxUint64-p.Len:
		return fmt.Errorf("%w: %d bytes at %#x", ErrKey, p.Len, p.Base)
	}
	return nil
}
