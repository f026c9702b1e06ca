//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// pd is a protection domain or a parent domain. A device without parent domains has them here
// alone: their objects are in the domain that they were allocated in.
type pd struct {
	d *device
	c *C.struct_ibv_pd // that of the parent, if ownC is not set
	// protection identifies the protection: the domain itself, or for a parent domain the one that
	// it was allocated in.
	protection *pd
	parent     *pd
	td         *td
	ownC       bool

	// Guarded by d.mu.
	children int
	closed   bool
}

// AllocPD allocates a protection domain.
func (d *device) AllocPD() (verbs.PD, error) {
	fail := func(err error) (verbs.PD, error) { return nil, fmt.Errorf("allocate protection domain: %w", err) }
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(kindPD); err != nil {
		return fail(err)
	}
	c, err := C.ibv_alloc_pd(d.c)
	if c == nil {
		d.openObjects[kindPD]--
		return fail(memoryFault(err))
	}
	p := &pd{d: d, c: c, ownC: true}
	p.protection = p
	return p, nil
}

// admit counts one more child. The caller holds d.mu.
func (p *pd) admit(k kind) error {
	if p.closed {
		return fmt.Errorf("the protection domain is closed: %w", ucs.ErrClosed)
	}
	if err := p.d.admit(k); err != nil {
		return err
	}
	p.children++
	return nil
}

// release counts one child less. The caller holds d.mu.
func (p *pd) release(k kind) {
	p.d.openObjects[k]--
	p.children--
}

// Parent allocates a parent domain. With a nil td its objects may be used by any goroutine.
func (p *pd) Parent(t verbs.TD) (verbs.PD, error) {
	fail := func(err error) (verbs.PD, error) { return nil, fmt.Errorf("allocate parent domain: %w", err) }
	dom, err := ownObjectOrNil[*td](p.d, "thread domain", t)
	if err != nil {
		return fail(err)
	}
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if dom != nil && dom.closed {
		return fail(fmt.Errorf("the thread domain is closed: %w", ucs.ErrClosed))
	}
	if err := p.admit(kindPD); err != nil {
		return fail(err)
	}
	n := &pd{d: d, c: p.c, protection: p.protection, td: dom, parent: p}
	if dom != nil {
		dom.parents++
		if dom.c != nil {
			if c, _ := C.goucx_parent_domain(d.c, p.protection.c, dom.c); c != nil {
				n.c, n.ownC = c, true
			}
		}
	}
	return n, nil
}

// Close frees the domain.
func (p *pd) Close() error {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.closed {
		return nil
	}
	if p.children > 0 {
		return fmt.Errorf("close protection domain: %d objects are open: %w", p.children, ucs.ErrBusy)
	}
	if p.ownC {
		if code := C.ibv_dealloc_pd(p.c); code != 0 && !d.gone.Load() {
			return fmt.Errorf("close protection domain: %w", returned(code))
		}
	}
	p.closed = true
	if p.td != nil {
		p.td.parents--
	}
	if p.parent != nil {
		p.parent.release(kindPD)
	} else {
		d.openObjects[kindPD]--
	}
	return nil
}

// td is a thread domain. On a device without them c is nil.
type td struct {
	d *device
	c *C.struct_ibv_td

	// Guarded by d.mu.
	parents int
	closed  bool
}

// AllocTD allocates a thread domain. The device chooses how doorbells are shared.
func (d *device) AllocTD(c verbs.TDConfig) (verbs.TD, error) {
	if c.Sharing < 0 || c.Sharing > 2 {
		return nil, fmt.Errorf("allocate thread domain: sharing %d, want 0 to 2: %w", c.Sharing, ucs.ErrInvalid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(kindTD); err != nil {
		return nil, fmt.Errorf("allocate thread domain: %w", err)
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
	if t.closed {
		return nil
	}
	if t.parents > 0 {
		return fmt.Errorf("close thread domain: %d parent domains use it: %w", t.parents, ucs.ErrBusy)
	}
	if t.c != nil {
		if code := C.goucx_dealloc_td(t.c); code != 0 && !d.gone.Load() {
			return fmt.Errorf("close thread domain: %w", returned(code))
		}
	}
	t.closed = true
	d.openObjects[kindTD]--
	return nil
}

// owned is an object of a device that a program passes back to create other objects.
type owned interface {
	comparable
	madeBy() *device
}

func (c *cq) madeBy() *device           { return c.d }
func (s *srq) madeBy() *device          { return s.d }
func (ch *compChannel) madeBy() *device { return ch.d }
func (t *td) madeBy() *device           { return t.d }
func (p *pd) madeBy() *device           { return p.d }

// ownObject converts v to an object of the device. name is its role in error texts.
func ownObject[T owned](d *device, name string, v any) (T, error) {
	var none T
	if v == nil {
		return none, fmt.Errorf("no %s: %w", name, ucs.ErrInvalid)
	}
	o, ok := v.(T)
	if !ok || o == none {
		return none, fmt.Errorf("%s %T of another provider: %w", name, v, ucs.ErrInvalid)
	}
	if o.madeBy() != d {
		return none, fmt.Errorf("%s of another device: %w", name, ucs.ErrInvalid)
	}
	return o, nil
}

// ownObjectOrNil is ownObject for an optional object: nil stays nil.
func ownObjectOrNil[T owned](d *device, name string, v any) (T, error) {
	if v == nil {
		var none T
		return none, nil
	}
	return ownObject[T](d, name, v)
}
