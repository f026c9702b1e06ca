package mapped

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/goucx/goucx/uct"
)

// Kind says where a region's memory comes from.
type Kind uint8

// Kinds; the numbers travel.
const (
	// Allocated by the domain, mapped by peers.
	Allocated Kind = 1
	// Registered memory of the program.
	Registered Kind = 2
)

// String names the kind in lower case.
func (k Kind) String() string {
	switch k {
	case Allocated:
		return "allocated"
	case Registered:
		return "registered"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// PackedKey is a region as peers are told about it.
type PackedKey struct {
	Kind   Kind
	Flags  uct.MemFlags // those for peers
	Domain uct.UUID
	Slot   uint32
	// PID is the owner's process id in its own namespace, for messages alone.
	PID       uint32
	Gen       uint64
	Base, Len uint64
	// Socket is where the owner answers; "" for a key that its own domain alone
	// can unpack. At most MaxSocket bytes.
	Socket string
}

// Layout of a packed key, little-endian; docs/wire/shm-key.md.
const (
	keyMagic   = 0x4b585547 // "GUXK"
	keyVersion = 1

	keyOffVersion = 4
	keyOffKind    = 5
	keyOffFlags   = 6
	keyOffSocket  = 7 // its length
	keyOffDomain  = 8
	keyOffSlot    = 24
	keyOffPID     = 28
	keyOffGen     = 32
	keyOffBase    = 40
	keyOffLen     = 48
	keyHead       = 56
	keySum        = 4

	// MaxSocket bounds the socket's name: what the kernel takes for a Unix
	// socket.
	MaxSocket = 107
	// MaxKey is the longest packed key.
	MaxKey = keyHead + MaxSocket + keySum
)

// KeyLen is the length of a packed key with a socket name of n bytes.
func KeyLen(n int) int { return keyHead + n + keySum }

// ErrKey: the bytes are not a key of this format, or damaged.
var ErrKey = errors.New("bad memory key")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// String names the region for messages.
func (p *PackedKey) String() string {
	return fmt.Sprintf("%v region of %d bytes at %#x of process %d", p.Kind, p.Len, p.Base, p.PID)
}

// Append appends the packed form.
func (p *PackedKey) Append(b []byte) []byte {
	start := len(b)
	le := binary.LittleEndian
	b = le.AppendUint32(b, keyMagic)
	b = append(b, keyVersion, byte(p.Kind), byte(p.Flags), byte(len(p.Socket)))
	b = append(b, p.Domain[:]...)
	b = le.AppendUint32(b, p.Slot)
	b = le.AppendUint32(b, p.PID)
	b = le.AppendUint64(b, p.Gen)
	b = le.AppendUint64(b, p.Base)
	b = le.AppendUint64(b, p.Len)
	b = append(b, p.Socket...)
	return le.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// Parse reads a packed key, which must be exactly that long. Nothing of p is to
// be used on an error.
//
// Errors: ErrKey, naming what is wrong.
func (p *PackedKey) Parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) < keyHead+keySum {
		return fmt.Errorf("%w: %d bytes, want at least %d", ErrKey, len(b), keyHead+keySum)
	}
	if m := le.Uint32(b); m != keyMagic {
		return fmt.Errorf("%w: magic %#x", ErrKey, m)
	}
	if v := b[keyOffVersion]; v != keyVersion {
		return fmt.Errorf("%w: version %d, this program knows %d", ErrKey, v, keyVersion)
	}
	if n := KeyLen(int(b[keyOffSocket])); b[keyOffSocket] > MaxSocket || len(b) != n {
		return fmt.Errorf("%w: %d bytes, its fields need %d", ErrKey, len(b), n)
	}
	body := b[:len(b)-keySum]
	if got, want := crc32.Checksum(body, castagnoli), le.Uint32(b[len(body):]); got != want {
		return fmt.Errorf("%w: checksum %#x, want %#x", ErrKey, got, want)
	}
	*p = PackedKey{
		Kind: Kind(b[keyOffKind]), Flags: uct.MemFlags(b[keyOffFlags]), Domain: uct.UUID(b[keyOffDomain:keyOffSlot]),
		Slot: le.Uint32(b[keyOffSlot:]), PID: le.Uint32(b[keyOffPID:]), Gen: le.Uint64(b[keyOffGen:]),
		Base: le.Uint64(b[keyOffBase:]), Len: le.Uint64(b[keyOffLen:]), Socket: string(body[keyHead:]),
	}
	return p.validate()
}

// validate refuses what no owner packs, checksum or not.
func (p *PackedKey) validate() error {
	switch {
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
