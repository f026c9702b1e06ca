package ucp

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/uct"
)

// MemHandle is memory that peers reach with a [RemoteKey]. Its methods are safe
// from any goroutine; what the memory holds while peers write it is the
// program's to order.
type MemHandle struct {
	ctx       *Context
	buf       []byte
	key       Key
	base      uint64
	access    uct.MemFlags
	allocated bool
	regions   []memRegion
	refused   []uct.Refusal
	sw        *swMem // nil: no peer may reach it

	// leaving: no operation takes the memory any more. Stored before Close looks for
	// operations, under the locks that they begin under.
	leaving atomic.Bool
	closing sync.Mutex // guards err, and that Close is carried out once
	closed  atomic.Bool
	err     error // of Close
}

// memRegion is the memory as one domain registered it.
type memRegion struct {
	uct.Mem
	transport uct.TransportID
	domain    int // number in the context
	name      string
}

// Register makes buf, memory of the program, reachable for peers over every
// transport that can. It stays pinned, and held, until Close. An empty buf is
// allowed; nothing but empty transfers reach it.
//
// A transport that refuses is skipped (see [MemHandle.Query]); an error is that
// all do.
func (x *Context) Register(buf []byte, mc MemConfig) (*MemHandle, error) {
	m := &MemHandle{ctx: x, buf: buf, base: addressOf(buf)}
	if err := m.open(mc, -1); err != nil {
		return nil, fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	return m, nil
}

// Allocate maps n bytes of zeroed memory, outside the Go heap, that every
// transport reaches in the best way it has: shm by load and store. 0 bytes are
// allowed, as for Register.
func (x *Context) Allocate(n int, mc MemConfig) (*MemHandle, error) {
	m := &MemHandle{ctx: x, allocated: true}
	err := fmt.Errorf("negative size: %w", ErrInvalid)
	if n >= 0 {
		err = m.open(mc, n)
	}
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes: %w", n, err)
	}
	return m, nil
}

// open allocates n bytes, or takes m.buf where n is negative, and registers
// them with all domains.
func (m *MemHandle) open(mc MemConfig, n int) error {
	f, err := mc.flags()
	if err != nil {
		return err
	}
	m.access = f & uct.MemRemote
	domains, err := m.ctx.memDomains()
	if err == nil {
		err = m.fill(domains, f, n)
	}
	if err == nil {
		err = m.pack()
	}
	if err == nil {
		err = m.ctx.own(m)
	}
	if err != nil {
		return errors.Join(err, m.closeRegions())
	}
	return nil
}

// fill allocates and registers, as open says.
func (m *MemHandle) fill(domains []memDomain, f uct.MemFlags, n int) error {
	if n == 0 || n < 0 && len(m.buf) == 0 {
		return nil
	}
	owner := -1 // the domain that allocated
	for i := 0; n > 0 && owner < 0 && i < len(domains); i++ {
		d := domains[i]
		if mem, err := d.Allocate(n, f); err == nil {
			owner = i
			m.buf, m.base = mem.Bytes(), addressOf(mem.Bytes())
			m.add(d, mem)
		} else {
			m.refuse(d, err)
		}
	}
	for i, d := range domains {
		if m.buf == nil || i <= owner {
			continue
		}
		if mem, err := d.Register(m.buf, f); err == nil {
			m.add(d, mem)
		} else {
			m.refuse(d, err)
		}
	}
	if len(m.regions) == 0 {
		return fmt.Errorf("no transport took it%s", reasons(m.refused))
	}
	return nil
}

func (m *MemHandle) add(d memDomain, mem uct.Mem) {
	name := d.info.Component
	if d.info.Name != name {
		name += "/" + d.info.Name
	}
	m.regions = append(m.regions, memRegion{mem, d.transport, d.number, name})
}

func (m *MemHandle) refuse(d memDomain, err error) {
	m.refused = append(m.refused, uct.Refusal{Transport: d.info.Component, Device: d.info.Name, Reason: err.Error()})
}

// pack makes the key.
func (m *MemHandle) pack() error {
	v := keyView{base: m.base, len: uint64(len(m.buf)), access: m.access, owner: m.ctx.id}
	for _, r := range m.regions {
		v.entries = append(v.entries, keyEntry{r.transport, uint8(r.domain), r.AppendKey(nil)}) // as many fit an address
	}
	if len(m.buf) > 0 && m.access != 0 {
		if m.sw = m.ctx.sw.add(m.buf, m.access); m.sw != nil {
			v.entries = append(v.entries, m.sw.key.entry())
		}
	}
	key, err := v.append(nil)
	m.key = key
	return err
}

// memDomain is a domain with the first transport that uses it.
type memDomain struct {
	openDomain
	number    int // among all of the context
	transport uct.TransportID
	kind      uct.DeviceKind
}

// memDomains lists the domains in the order in which they are asked to
// allocate: memory of shm serves everybody on the host best, memory of a network
// device everybody else, memory of self only self.
func (x *Context) memDomains() ([]memDomain, error) {
	domains, err := x.openedDomains()
	if err != nil {
		return nil, err
	}
	rank := [...]int{uct.DeviceShm: 0, uct.DeviceNet: 1, uct.DeviceSelf: 2}
	var ds []memDomain
	for n, d := range domains {
		if infos, _ := d.Ifaces(); len(infos) > 0 {
			ds = append(ds, memDomain{d, n, infos[0].ID, infos[0].Kind})
		}
	}
	slices.SortStableFunc(ds, func(a, b memDomain) int { return rank[a.kind] - rank[b.kind] })
	return ds, nil
}

// Bytes is the memory; valid until Close, nil afterwards.
func (m *MemHandle) Bytes() []byte {
	if m.closed.Load() {
		return nil
	}
	return m.buf
}

// Key is the packed key that peers unpack, as a copy.
func (m *MemHandle) Key() Key { return slices.Clone(m.key) }

// Load64 reads the eight bytes at off, little-endian: as one atomic load where
// their address is a multiple of eight, so that a loop which waits for a peer's
// put or atomic sees it whole. An offset out of range panics, as an index does.
func (m *MemHandle) Load64(off int) uint64 { return load64(m.Bytes()[off : off+8]) }

// Close revokes the memory: an access of a peer that comes later fails there,
// and none lands late. Then it gives the memory back. Idempotent.
//
// Errors: ErrBusy, and nothing happens, while an operation of the program that
// has not ended reads or writes the memory. That is known of ThreadMulti workers;
// operations of others must have ended. An access of a peer that could not be
// stopped in time leaves memory of the program exposed to it; the error says so,
// and the memory stays pinned for good.
func (m *MemHandle) Close() error {
	m.closing.Lock()
	defer m.closing.Unlock()
	if m.closed.Load() {
		return m.err
	}
	m.leaving.Store(true)
	if m.ctx.holds(m.buf) {
		m.leaving.Store(false)
		return fmt.Errorf("close memory of %d bytes at %#x: an operation has it: %w", len(m.buf), m.base, ErrBusy)
	}
	m.closed.Store(true)
	if err := m.closeRegions(); err != nil {
		m.err = fmt.Errorf("close memory of %d bytes at %#x: %w", len(m.buf), m.base, err)
	}
	m.ctx.disown(m) // the last: a context that closes meanwhile waits for it here
	return m.err
}

// closeRegions revokes everywhere first, then gives back, the domain that
// allocated last.
func (m *MemHandle) closeRegions() error {
	m.ctx.sw.remove(m.sw)
	for _, r := range m.regions {
		r.Revoke()
	}
	var errs []error
	for _, r := range slices.Backward(m.regions) {
		if err := r.Close(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.name, err))
		}
	}
	return errors.Join(errs...)
}
