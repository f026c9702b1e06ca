//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// pd is a protection domain or a parent domain. A device without parent domains has them here
// alone: their objects are in the domain that they were allocated in.
type pd struct {
	objects.Domain // guarded by d.mu
	d              *device
	c              *C.struct_ibv_pd // that of the parent, if ownC is not set
	// protection identifies the protection: the domain itself, or for a parent domain the one that
	// it was allocated in.
	protection *pd
	ownC       bool
}

// AllocPD allocates a protection domain.
func (d *device) AllocPD() (verbs.PD, error) {
	fail := func(err error) (verbs.PD, error) { return nil, fmt.Errorf("allocate protection domain: %w", err) }
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone.Load() {
		return fail(ErrDeviceGone)
	}
	p := &pd{d: d, ownC: true}
	if err := p.Alloc(&d.open, 0); err != nil {
		return fail(err)
	}
	var err error
	if p.c, err = C.ibv_alloc_pd(d.c); p.c == nil {
		d.open.Release(objects.PD)
		return fail(memoryFault(err))
	}
	p.protection = p
	return p, nil
}

// admit counts one more child. The caller holds d.mu.
func (p *pd) admit(k objects.Kind) error {
	if p.d.gone.Load() {
		return ErrDeviceGone
	}
	return p.Admit(k, 0)
}

// single reports whether one goroutine at a time uses the objects of the domain, which may be nil.
func (p *pd) single() bool { return p != nil && p.Single() }

// Parent allocates a parent domain. With a nil td its objects may be used by any goroutine.
func (p *pd) Parent(t verbs.TD) (verbs.PD, error) {
	fail := func(err error) (verbs.PD, error) { return nil, fmt.Errorf("allocate parent domain: %w", err) }
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	dom, err := objects.OwnOrNil[*td](d, "thread domain", t)
	if err != nil {
		return fail(err)
	}
	if d.gone.Load() {
		return fail(ErrDeviceGone)
	}
	n := &pd{d: d, c: p.c, protection: p.protection}
	if err := n.AllocParent(&p.Domain, dom.account(), 0); err != nil {
		return fail(err)
	}
	if dom != nil && dom.c != nil {
		if c, _ := C.goucx_parent_domain(d.c, p.protection.c, dom.c); c != nil {
			n.c, n.ownC = c, true
		}
	}
	return n, nil
}

// Close frees the domain.
func (p *pd) Close() error {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	err := p.Domain.Close(func() error {
		if !p.ownC {
			return nil
		}
		return d.freed(C.ibv_dealloc_pd(p.c))
	})
	if err != nil {
		return fmt.Errorf("close protection domain: %w", err)
	}
	return nil
}

// freed returns the error of a call that frees an object. A device that is gone has freed all.
func (d *device) freed(code C.int) error {
	if d.gone.Load() {
		return nil
	}
	return returned(code)
}

// td is a thread domain. On a device without them c is nil.
type td struct {
	d       *device
	c       *C.struct_ibv_td
	parents objects.Uses // guarded by d.mu
}

// account returns the account of its parent domains; nil without a thread domain.
func (t *td) account() *objects.Uses {
	if t == nil {
		return nil
	}
	return &t.parents
}

// AllocTD allocates a thread domain. The device chooses how doorbells are shared.
func (d *device) AllocTD(c verbs.TDConfig) (verbs.TD, error) {
	fail := func(err error) (verbs.TD, error) { return nil, fmt.Errorf("allocate thread domain: %w", err) }
	if err := objects.CheckTD(c); err != nil {
		return fail(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(objects.TD); err != nil {
		return fail(err)
	}
	t := &td{d: d}
	t.c, _ = C.goucx_alloc_td(d.c) // without one, the objects under it take locks
	return t, nil
}

// Close frees the thread domain.
func (t *td) Close() error {
	d := t.d
	d.mu.Lock()
	defer d.mu.Unlock()
	first, err := t.parents.Close("parent domains")
	if first {
		d.open.Release(objects.TD)
		if t.c != nil {
			err = d.freed(C.goucx_dealloc_td(t.c))
		}
	}
	if err != nil {
		return fmt.Errorf("close thread domain: %w", err)
	}
	return nil
}

// MadeBy returns the device of an object that a program passes back.
func (c *cq) MadeBy() *device           { return c.d }
func (s *srq) MadeBy() *device          { return s.d }
func (ch *compChannel) MadeBy() *device { return ch.d }
func (t *td) MadeBy() *device           { return t.d }
func (p *pd) MadeBy() *device           { return p.d }
func (w *mw) MadeBy() *device           { return w.d }
func (m *mr) MadeBy() *device           { return m.d }
