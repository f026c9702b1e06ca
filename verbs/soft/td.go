package soft

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// td is a thread domain.
type td struct {
	d       *device
	sharing int

	// Guarded by d.mu.
	parents int
	closed  bool
}

const maxSharing = 2

// AllocTD allocates a thread domain.
func (d *device) AllocTD(c verbs.TDConfig) (verbs.TD, error) {
	if c.Sharing < 0 || c.Sharing > maxSharing {
		return nil, fmt.Errorf("allocate thread domain: Sharing %d, want 0 to %d: %w", c.Sharing, maxSharing, ucs.ErrInvalid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(kindTD, 0); err != nil {
		return nil, fmt.Errorf("allocate thread domain: %w", err)
	}
	return &td{d: d, sharing: c.Sharing}, nil
}

// Close frees the domain.
func (t *td) Close() error {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	if t.closed {
		return nil
	}
	if t.parents > 0 {
		return fmt.Errorf("close thread domain: %d parent domains use it: %w", t.parents, ucs.ErrBusy)
	}
	t.closed = true
	t.d.openObjects[kindTD]--
	return nil
}
