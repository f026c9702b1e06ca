package shm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// The key protocol: one request and one reply, one message each, little-endian;
// docs/wire/shm-key.md.
const (
	requestMagic = 0x51585547 // "GUXQ"
	replyMagic   = 0x52585547 // "GUXR"
	keyVersion   = 1

	requestLen     = 40
	replyHeaderLen = 8
	maxReply       = replyHeaderLen + mapped.MaxKey
)

// keyRequest is a request for a region.
type keyRequest struct {
	wantTable bool
	domain    uct.UUID
	slot      uint32
	gen       uint64
}

func (a *keyRequest) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, requestMagic)
	var flags byte
	if a.wantTable {
		flags = 1
	}
	b = append(b, keyVersion, flags, 0, 0)
	b = append(b, a.domain[:]...)
	b = le.AppendUint32(b, a.slot)
	b = le.AppendUint32(b, 0)
	return le.AppendUint64(b, a.gen)
}

var errRequest = errors.New("bad key request")

func (a *keyRequest) parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) != requestLen {
		return fmt.Errorf("%w: %d bytes, want %d", errRequest, len(b), requestLen)
	}
	if m := le.Uint32(b); m != requestMagic {
		return fmt.Errorf("%w: magic %#x", errRequest, m)
	}
	if b[4] != keyVersion {
		return fmt.Errorf("%w: version %d, this program knows %d", errRequest, b[4], keyVersion)
	}
	if b[5] > 1 || b[6] != 0 || b[7] != 0 || le.Uint32(b[28:]) != 0 {
		return fmt.Errorf("%w: unknown flags", errRequest)
	}
	*a = keyRequest{wantTable: b[5] == 1, domain: uct.UUID(b[8:24]), slot: le.Uint32(b[24:]), gen: le.Uint64(b[32:])}
	return nil
}

// keyStatus is the status of a reply.
type keyStatus uint8

const (
	keyOK          keyStatus = iota
	keyWrongDomain           // the socket belongs to another domain
	keyRevoked               // the region was revoked or closed
	keyBadVersion            // unknown version or format of the request
	numKeyStatuses
)

var keyStatusErrs = [numKeyStatuses]error{
	keyWrongDomain: fmt.Errorf("the key server belongs to another domain: %w", ucs.ErrRemoteAccess),
	keyRevoked:     fmt.Errorf("the region was revoked or closed: %w", ucs.ErrRemoteAccess),
	keyBadVersion:  fmt.Errorf("the owner does not support this request: use one version of goucx on a host: %w", ucs.ErrUnsupported),
}

// keyReply is the reply to a request. With keyOK the region's packed key follows, and
// these descriptors in this order: the key table, if requested, and the region, if it is
// allocated.
type keyReply struct {
	status keyStatus
	region mapped.PackedKey
}

func (r *keyReply) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, replyMagic)
	b = append(b, keyVersion, byte(r.status), 0, 0)
	if r.status == keyOK {
		b = r.region.Append(b)
	}
	return b
}

var errReply = fmt.Errorf("invalid reply of the key server: %w", ucs.ErrInvalid)

func (r *keyReply) parse(b []byte) error {
	if len(b) < replyHeaderLen {
		return fmt.Errorf("%w: %d bytes", errReply, len(b))
	}
	if m := binary.LittleEndian.Uint32(b); m != replyMagic || b[4] != keyVersion {
		return fmt.Errorf("%w: magic %#x, version %d", errReply, m, b[4])
	}
	r.status = keyStatus(b[5])
	if r.status >= numKeyStatuses || b[6] != 0 || b[7] != 0 {
		return fmt.Errorf("%w: status %d", errReply, b[5])
	}
	if r.status != keyOK {
		return nil
	}
	if err := r.region.Parse(b[replyHeaderLen:]); err != nil {
		return fmt.Errorf("%w: %w", errReply, err)
	}
	return nil
}
