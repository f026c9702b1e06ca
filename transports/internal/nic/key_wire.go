package nic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/uct"
)

// ErrKey: the bytes are not a key of this format, or are corrupted.
var ErrKey = errors.New("bad memory key")

// packedKey is the decoded form of a packed key: it describes a region to peers.
type packedKey struct {
	flags      uct.MemFlags // those for peers
	rkey       uint32
	base, size uint64
}

// Layout of a packed key, little-endian; docs/wire/rc.md.
const (
	keyMagic = 0x52585547 // "GUXR"

	keyOffVersion  = 4
	keyOffFlags    = 5
	keyOffFeatures = 6
	keyOffRKey     = 8
	keyOffBase     = 12
	keyOffSize     = 20
	keyOffSum      = 28
	packedKeyLen   = keyOffSum + checksumLen
)

var keyFormat = protocol.Format{Name: "memory key of rc", Version: 1}

func (p *packedKey) append(b []byte) []byte {
	start, le := len(b), binary.LittleEndian
	b = le.AppendUint32(b, keyMagic)
	b = append(b, keyFormat.Version, byte(p.flags), 0, 0)
	b = le.AppendUint32(b, p.rkey)
	b = le.AppendUint64(b, p.base)
	b = le.AppendUint64(b, p.size)
	return AppendChecksum(b, start)
}

// parse decodes a packed key. b must be exactly the key.
//
// Errors: ErrKey, with the invalid field, and a [protocol.Error].
func (p *packedKey) parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) <= keyOffFeatures {
		return fmt.Errorf("%w: %d bytes, want %d", ErrKey, len(b), packedKeyLen)
	}
	if m := le.Uint32(b); m != keyMagic {
		return fmt.Errorf("%w: magic %#x", ErrKey, m)
	}
	if err := keyFormat.Check(b[keyOffVersion], protocol.Features(b[keyOffFeatures])); err != nil {
		return fmt.Errorf("%w: %w", ErrKey, err)
	}
	if len(b) != packedKeyLen {
		return fmt.Errorf("%w: %d bytes, want %d", ErrKey, len(b), packedKeyLen)
	}
	if err := VerifyChecksum(b); err != nil {
		return fmt.Errorf("%w: %w", ErrKey, err)
	}
	*p = packedKey{
		flags: uct.MemFlags(b[keyOffFlags]), rkey: le.Uint32(b[keyOffRKey:]),
		base: le.Uint64(b[keyOffBase:]), size: le.Uint64(b[keyOffSize:]),
	}
	switch {
	case p.flags&^uct.MemRemote != 0 || b[keyOffFeatures+1] != 0:
		return fmt.Errorf("%w: flags %#x", ErrKey, b[keyOffFlags:keyOffRKey])
	case p.size == 0 || p.size > math.MaxInt || p.base > math.MaxUint64-p.size:
		return fmt.Errorf("%w: %d bytes at %#x", ErrKey, p.size, p.base)
	}
	return nil
}
