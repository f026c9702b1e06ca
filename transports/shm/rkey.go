package shm

import (
	"fmt"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Put, get and atomics come from mapped.RMA, embedded in ep. This file unpacks keys: of
// this process by lookup, of other processes by a request to the owner.

// UnpackKey: see uct.Domain. It sends a request to the owner and blocks for at most
// requestTimeout, unless the region is of this process or was unpacked before.
//
// Errors: mapped.ErrKey if the bytes are damaged; ucs.ErrRemoteAccess if the region was
// revoked or closed; ucs.ErrUnreachable, ErrTimeout, ErrPeerFailed if the owner is gone or
// does not reply; ucs.ErrUnsupported if the region is private memory of another process
// and the system forbids copies between processes.
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

// unpack adds a key of region p: of this process, or of a remote domain.
func (d *domain) unpack(p *mapped.PackedKey) (uct.RKey, error) {
	localExporters.Lock()
	l := localExporters.exporters[p.Domain]
	localExporters.Unlock()
	if l != nil {
		return l.Resolve(p, d.keys)
	}
	if p.Domain == d.id {
		return 0, fmt.Errorf("this domain has no regions: %w", ucs.ErrRemoteAccess)
	}
	r, err := d.remote(p)
	if err != nil {
		return 0, err
	}
	k, err := r.unpack(p)
	if err != nil {
		d.releaseRemote(r)
	}
	return k, err
}

// KeyAttr: see uct.Domain.
func (d *domain) KeyAttr(k uct.RKey) uct.KeyAttr { return d.keys.Attr(k) }

// ReleaseKey: see uct.Domain.
func (d *domain) ReleaseKey(k uct.RKey) { d.keys.Release(k) }
