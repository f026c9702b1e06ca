package self

import (
	"fmt"
	"math"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Put, get and atomics come from mapped.RMA, embedded in endpoint.

// maxRegions is the maximum number of regions of a domain. Pages of their table are
// allocated at the first access.
const maxRegions = 1 << 16

// Register: see uct.Domain.
func (d *domain) Register(buf []byte, f uct.MemFlags) (uct.Mem, error) {
	r, err := d.owner.Register(buf, f)
	if err != nil {
		return nil, fmt.Errorf("self: %w", err)
	}
	return r, nil
}

// Allocate: see uct.Domain.
func (d *domain) Allocate(n int, f uct.MemFlags) (uct.Mem, error) {
	if n <= 0 || n > maxAllocate {
		return nil, fmt.Errorf("self: allocate %d bytes: %w", n, ucs.ErrInvalid)
	}
	mem, err := mapped.MapAnonymous(n)
	if err != nil {
		return nil, fmt.Errorf("self: %w", err)
	}
	r, err := d.owner.Adopt(mem, -1, f, func() error { return mapped.Unmap(mem) })
	if err != nil {
		_ = mapped.Unmap(mem) // the first error is returned
		return nil, fmt.Errorf("self: %w", err)
	}
	return r, nil
}

// UnpackKey: see uct.Domain. It accepts only keys of this domain.
func (d *domain) UnpackKey(key []byte) (uct.RKey, error) {
	var p mapped.PackedKey
	if err := p.Parse(key); err != nil {
		return 0, fmt.Errorf("self: unpack key: %w", err)
	}
	if p.Domain != d.id {
		return 0, fmt.Errorf("self: unpack key: %v belongs to another domain: %w", &p, ucs.ErrUnreachable)
	}
	k, err := d.owner.Resolve(&p, &d.keys)
	if err != nil {
		return 0, fmt.Errorf("self: unpack key: %w", err)
	}
	return k, nil
}

// KeyAttr: see uct.Domain.
func (d *domain) KeyAttr(k uct.RKey) uct.KeyAttr { return d.keys.Attr(k) }

// ReleaseKey: see uct.Domain.
func (d *domain) ReleaseKey(k uct.RKey) { d.keys.Release(k) }

// maxAllocate keeps a size within an int after it is rounded up to pages.
const maxAllocate = math.MaxInt - 1<<30
