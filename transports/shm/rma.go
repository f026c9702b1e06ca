package shm

import (
	"fmt"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Put, get and atomics come with mapped.RMA, embedded in ep. Here keys are
// unpacked: in this process by looking, elsewhere by asking the owner.

// UnpackKey: see uct.Domain. It asks the owner, at most for a second, unless the
// region is this process's or was unpacked before.
//
// Errors: mapped.ErrKey where the bytes are damaged; ucs.ErrRemoteAccess where
// the region was revoked or closed; ucs.ErrUnreachable, ErrTimeout, ErrPeerFailed
// where the owner is gone or silent; ucs.ErrUnsupported where the region is
// memory of another program and the system forbids copies between processes.
func (d *domain) UnpackKey(key []byte) (uct.RKey, error) {
	var p mapped.PackedKey
	if err := p.Parse(key); err != nil {
		return 0, fmt.Errorf("shm: unpack key: %w", err)
	}
	k, err := d.unpack(&p)
	if err != nil {
		return 0, fmt.Errorf("shm: unpack key of %v: %w", &p, err)
	}
	return k, nil
}

func (d *domain) unpack(p *mapped.PackedKey) (uct.RKey, error) {
	if l := localLender(p.Domain); l != nil {
		return l.Resolve(p, d.keys)
	}
	if p.Domain == d.id {
		return 0, fmt.Errorf("this domain has lent nothing: %w", ucs.ErrRemoteAccess)
	}
	r, err := d.remote(p)
	if err != nil {
		return 0, err
	}
	k, err := r.unpack(p)
	if err != nil {
		d.dropRemote(r)
	}
	return k, err
}

// KeyAttr: see uct.Domain.
func (d *domain) KeyAttr(k uct.RKey) uct.KeyAttr { return d.keys.Attr(k) }

// ReleaseKey: see uct.Domain.
func (d *domain) ReleaseKey(k uct.RKey) { d.keys.Release(k) }
