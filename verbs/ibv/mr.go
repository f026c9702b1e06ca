//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// mr is a memory region. It refers to its memory and pins it: the device accesses the pages
// behind the runtime's back, so that they must stay where they are and what they are.
type mr struct {
	d      *device
	domain *pd // the domain that it was created in

	// ctl serialises Reregister and Close, and guards the rest.
	ctl    sync.Mutex
	c      *C.struct_ibv_mr // nil: closed
	lkey   uint32           // this and rkey stay after Close, for requests that come too late
	rkey   uint32
	pin    *runtime.Pinner
	buf    []byte
	addr   uint64
	access verbs.Access
}

// knownAccess are the access flags that libibverbs has; the device refuses what it lacks.
const knownAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic | verbs.BindMW | verbs.ZeroBased |
	verbs.OnDemand | verbs.HugeTLB | verbs.FlushGlobal | verbs.FlushPersistent | verbs.RelaxedOrdering

// Register registers buf and pins it until Close.
//
// Errors: ErrMemlock; ucs.ErrUnsupported for access that the device lacks, and for Revocable.
func (p *pd) Register(buf []byte, c verbs.MRConfig) (verbs.MR, error) {
	m := &mr{d: p.d}
	if err := m.register(p, buf, c); err != nil {
		return nil, err
	}
	return m, nil
}

// checkRegistration refuses what no device accepts. It returns the address of the first byte.
func checkRegistration(buf []byte, c verbs.MRConfig) (addr uint64, err error) {
	if c.Revocable {
		return 0, fmt.Errorf("a key that work requests may invalidate: %w", ucs.ErrUnsupported)
	}
	at := uint64(addrOf(buf))
	if addr, err = objects.CheckRegistration(len(buf), at, knownAccess, c); err != nil {
		return 0, err
	}
	if (addr^at)&uint64(os.Getpagesize()-1) != 0 {
		return 0, fmt.Errorf("address %#x for memory at %#x: the kernel requires equal offsets in a page: %w", addr, at, ucs.ErrUnsupported)
	}
	return addr, nil
}

func (m *mr) register(p *pd, buf []byte, c verbs.MRConfig) error {
	fail := func(err error) error { return fmt.Errorf("register %d bytes: %w", len(buf), err) }
	addr, err := checkRegistration(buf, c)
	if err != nil {
		return fail(err)
	}
	d := m.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.admit(objects.MR); err != nil {
		return fail(err)
	}
	pin := pinned(buf)
	// The device needs no flag for a zero-based region: it begins at address 0.
	m.c, err = C.goucx_reg_mr(p.c, C.uintptr_t(addrOf(buf)), C.uint64_t(len(buf)), C.uint64_t(addr), C.uint32_t(c.Access&^verbs.ZeroBased))
	if m.c == nil {
		pin.Unpin()
		p.Release(objects.MR)
		return fail(memoryFault(err))
	}
	m.domain, m.pin, m.buf, m.addr, m.access = p, pin, buf, addr, c.Access
	m.lkey, m.rkey = uint32(m.c.lkey), uint32(m.c.rkey)
	return nil
}

// Reregister changes the registration with one call of the kernel, where the device can do that;
// else it closes the region and registers anew. The keys change.
//
// Errors: on an error the region is closed, unless the arguments are invalid.
func (m *mr) Reregister(dom verbs.PD, buf []byte, c verbs.MRConfig) error {
	p, err := objects.Own[*pd](m.d, "protection domain", dom)
	if err == nil {
		_, err = checkRegistration(buf, c)
	}
	if err != nil {
		return fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	m.ctl.Lock()
	defer m.ctl.Unlock()
	if m.c != nil && !c.HasIOVA && c.Access&verbs.ZeroBased == 0 && m.rereg(p, buf, c) {
		return nil
	}
	if err := m.closeLocked(); err != nil {
		return err
	}
	return m.register(p, buf, c)
}

// rereg changes the registration in the kernel. It returns false if the device cannot; the
// region is as before then.
//
// Source: ibv_rereg_mr(3): with IBV_REREG_MR_ERR_INPUT the old registration is valid.
func (m *mr) rereg(p *pd, buf []byte, c verbs.MRConfig) bool {
	d := m.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.admit(objects.MR) != nil {
		return false
	}
	flags := C.IBV_REREG_MR_CHANGE_TRANSLATION | C.IBV_REREG_MR_CHANGE_ACCESS | C.IBV_REREG_MR_CHANGE_PD
	pin := pinned(buf)
	if C.goucx_rereg_mr(m.c, C.int(flags), p.c, C.uintptr_t(addrOf(buf)), C.uint64_t(len(buf)), C.uint32_t(c.Access)) != 0 {
		pin.Unpin()
		p.Release(objects.MR)
		return false
	}
	m.pin.Unpin()
	m.domain.Release(objects.MR)
	m.domain, m.pin, m.buf, m.addr, m.access = p, pin, buf, uint64(addrOf(buf)), c.Access
	m.lkey, m.rkey = uint32(m.c.lkey), uint32(m.c.rkey)
	return true
}

// LKey returns the local key.
func (m *mr) LKey() uint32 { return m.lkey }

// RKey returns the remote key.
func (m *mr) RKey() uint32 { return m.rkey }

// Addr returns the address of the first byte.
func (m *mr) Addr() uint64 { return m.addr }

// Bytes returns the memory, until Close.
func (m *mr) Bytes() []byte { return m.buf }

// Close invalidates the keys. The device no longer accesses the memory when it returns.
//
// Errors: ucs.ErrBusy while memory windows are bound to the region.
func (m *mr) Close() error {
	m.ctl.Lock()
	defer m.ctl.Unlock()
	return m.closeLocked()
}

func (m *mr) closeLocked() error {
	if m.c == nil {
		return nil
	}
	d := m.d
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.freed(C.ibv_dereg_mr(m.c))
	if errors.Is(err, ucs.ErrInvalid) { // rxe has EINVAL for EBUSY
		err = fmt.Errorf("memory windows are bound to it: %w", ucs.ErrBusy)
	}
	if err != nil {
		return fmt.Errorf("close region of %d bytes: %w", len(m.buf), err)
	}
	m.pin.Unpin()
	m.c, m.pin, m.buf = nil, nil, nil
	m.domain.Release(objects.MR)
	return nil
}
