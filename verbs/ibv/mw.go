//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// mw is a memory window.
type mw struct {
	d      *device
	domain *pd
	c      *C.struct_ibv_mw
	typ    verbs.MWType
	key    atomic.Uint32
	closed bool // guarded by device.mu
}

// AllocMW allocates a memory window.
//
// Errors: ucs.ErrUnsupported if the device has none of the type.
func (p *pd) AllocMW(t verbs.MWType) (verbs.MW, error) {
	fail := func(err error) (verbs.MW, error) {
		return nil, fmt.Errorf("allocate memory window of type %d: %w", t, err)
	}
	if t != verbs.MWType1 && t != verbs.MWType2 {
		return fail(ucs.ErrInvalid)
	}
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.admit(objects.MW); err != nil {
		return fail(err)
	}
	c, err := C.goucx_alloc_mw(p.c, C.int(t))
	if c == nil {
		p.Release(objects.MW)
		return fail(fault(err))
	}
	w := &mw{d: d, domain: p, c: c, typ: t}
	w.key.Store(uint32(c.rkey))
	return w, nil
}

// RKey returns the key.
func (w *mw) RKey() uint32 { return w.key.Load() }

// Close frees the window.
func (w *mw) Close() error {
	d := w.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.closed {
		return nil
	}
	if err := d.freed(C.goucx_dealloc_mw(w.c)); err != nil {
		return fmt.Errorf("close memory window: %w", err)
	}
	w.closed = true
	w.domain.Release(objects.MW)
	return nil
}

// BindWindow posts a request that binds w.
func (q *qp) BindWindow(id uint64, flags verbs.SendFlags, w verbs.MW, b verbs.MWBind) error {
	fail := func(err error) error { return fmt.Errorf("bind memory window: %w", err) }
	window, err := objects.Own[*mw](q.d, "memory window", w)
	if err != nil {
		return fail(err)
	}
	region, err := objects.Own[*mr](q.d, "memory region", b.MR)
	if err != nil {
		return fail(err)
	}
	region.ctl.Lock()
	defer region.ctl.Unlock()
	q.ctl.Lock()
	defer q.ctl.Unlock()
	d := q.d
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case q.closed || window.closed || region.c == nil:
		return fail(ucs.ErrClosed)
	case q.typ == verbs.UD:
		return fail(fmt.Errorf("a queue pair of datagrams: %w", ucs.ErrUnsupported))
	case q.c.can_send == 0:
		return fail(fmt.Errorf("the queue pair is in state %v: %w", q.attr.State, ucs.ErrInvalid))
	case region.access&verbs.BindMW == 0:
		return fail(fmt.Errorf("the region has no BindMW access: %w", ucs.ErrInvalid))
	case b.Access&(verbs.RemoteWrite|verbs.RemoteAtomic) != 0 && region.access&verbs.LocalWrite == 0:
		return fail(fmt.Errorf("RemoteWrite and RemoteAtomic require LocalWrite of the region: %w", ucs.ErrInvalid))
	case b.Len > 0 && (b.Addr < region.addr || b.Addr+b.Len-region.addr > uint64(len(region.buf)) || b.Addr+b.Len < b.Addr):
		return fail(fmt.Errorf("%d bytes at %#x are not in the region: %w", b.Len, b.Addr, ucs.ErrInvalid))
	}
	var key C.uint32_t
	info := C.struct_ibv_mw_bind_info{mr: region.c, addr: C.uint64_t(b.Addr), length: C.uint64_t(b.Len), mw_access_flags: C.uint(b.Access)}
	if code := C.goucx_bind_mw(q.c.qp, window.c, C.int(window.typ), C.uint64_t(id), C.uint(flags), info, &key); code != 0 {
		return fail(returned(code))
	}
	window.key.Store(uint32(key))
	return nil
}
