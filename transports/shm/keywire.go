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
	askMagic   = 0x51585547 // "GUXQ"
	replyMagic = 0x52585547 // "GUXR"
	askVersion = 1

	askLen    = 40
	replyHead = 8
	replyMax  = replyHead + mapped.MaxKey
)

// keyAsk is a request for a region.
type keyAsk struct {
	wantTable bool
	domain    uct.UUID
	slot      uint32
	gen       uint64
}

func (a *keyAsk) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, askMagic)
	var flags byte
	if a.wantTable {
		flags = 1
	}
	b = append(b, askVersion, flags, 0, 0)
	b = append(b, a.domain[:]...)
	b = le.AppendUint32(b, a.slot)
	b = le.AppendUint32(b, 0)
	return le.AppendUint64(b, a.gen)
}

var errAsk = errors.New("bad key request")

func (a *keyAsk) parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) != askLen {
		return fmt.Errorf("%w: %d bytes, want %d", errAsk, len(b), askLen)
	}
	if m := le.Uint32(b); m != askMagic {
		return fmt.Errorf("%w: magic %#x", errAsk, m)
	}
	if b[4] != askVersion {
		return fmt.Errorf("%w: version %d, this program knows %d", errAsk, b[4], askVersion)
	}
	if b[5] > 1 || b[6] != 0 || b[7] != 0 || le.Uint32(b[28:]) != 0 {
		return fmt.Errorf("%w: unknown flags", errAsk)
	}
	*a = keyAsk{wantTable: b[5] == 1, domain: uct.UUID(b[8:24]), slot: le.Uint32(b[24:]), gen: le.Uint64(b[32:])}
	return nil
}

// keyAnswer is the status of a reply.
type keyAnswer uint8

const (
	answerOK      keyAnswer = iota
	answerDomain            // the socket belongs to another domain
	answerGone              // the region was revoked or closed
	answerVersion           // unknown version or format of the request
	numAnswers
)

var answerErrs = [numAnswers]error{
	answerDomain:  fmt.Errorf("the key server belongs to another domain: %w", ucs.ErrRemoteAccess),
	answerGone:    fmt.Errorf("the region was revoked or closed: %w", ucs.ErrRemoteAccess),
	answerVersion: fmt.Errorf("the owner does not support this request: use one version of goucx on a host: %w", ucs.ErrUnsupported),
}

// keyReply is the reply to a request. With answerOK the region's packed key follows, and
// these descriptors in this order: the key table, if requested, and the region, if it is
// allocated.
type keyReply struct {
	answer keyAnswer
	region mapped.PackedKey
}

func (r *keyReply) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, replyMagic)
	b = append(b, askVersion, byte(r.answer), 0, 0)
	if r.answer == answerOK {
		b = r.region.Append(b)
	}
	return b
}

var errReply = fmt.Errorf("invalid reply of the key server: %w", ucs.ErrInvalid)

func (r *keyReply) parse(b []byte) error {
	if len(b) < replyHead {
		return fmt.Errorf("%w: %d bytes", errReply, len(b))
	}
	if m := binary.LittleEndian.Uint32(b); m != replyMagic || b[4] != askVersion {
		return fmt.Errorf("%w: magic %#x, version %d", errReply, m, b[4])
	}
	r.answer = keyAnswer(b[5])
	if r.answer >= numAnswers || b[6] != 0 || b[7] != 0 {
		return fmt.Errorf("%w: status %d", errReply, b[5])
	}
	if r.answer != answerOK {
		return nil
	}
	if err := r.region.Parse(b[replyHead:]); err != nil {
		return fmt.Errorf("%w: %w", errReply, err)
	}
	return nil
}
