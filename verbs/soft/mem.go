package soft

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// mr is registered memory.
//
// The device holds the slice, which keeps the memory where it is: Go's collector
// moves no heap object, the device uses no address but as a number within the
// slice, and no other hardware knows one. So nothing has to be pinned.
type mr struct {
	d      *device
	pd     *pd // the protection
	from   *pd // the domain that it was made in
	key    uint32
	access verbs.Access
	revoke bool        // by work requests
	addr   uint64      // iova of the first byte
	buf    []byte      // changes while no key leads here: nobody can see half a slice
	dead   atomic.Bool // the key is invalid; changed under mrTable.mu
	ctl    sync.Mutex  // Close, one at a time: the second returns when the first has waited
	closed bool        // under ctl
}

const (
	knownAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic | verbs.ZeroBased |
		verbs.HugeTLB | verbs.RelaxedOrdering // the last two are wishes that nothing here can grant
	laterAccess = verbs.BindMW | verbs.OnDemand | verbs.FlushGlobal | verbs.FlushPersistent
)

// checkAccess refuses combinations that the specification knows not, or that
// this device has not.
func checkAccess(a verbs.Access) error {
	switch {
	case a&laterAccess != 0:
		return fmt.Errorf("access %#x of a soft device: %w", uint32(a&laterAccess), ucs.ErrUnsupported)
	case a&^knownAccess != 0:
		return fmt.Errorf("access %#x is unknown: %w", uint32(a&^knownAccess), ucs.ErrInvalid)
	case a&(verbs.RemoteWrite|verbs.RemoteAtomic) != 0 && a&verbs.LocalWrite == 0:
		return fmt.Errorf("access %#x: RemoteWrite and RemoteAtomic require LocalWrite: %w", uint32(a), ucs.ErrInvalid)
	}
	return nil
}

// Register makes the memory known to the device under a key.
func (p *pd) Register(buf []byte, c verbs.MRConfig) (verbs.MR, error) {
	m := &mr{d: p.d, closed: true}
	if err := m.Reregister(p, buf, c); err != nil {
		return nil, err
	}
	return m, nil
}

// Reregister registers buf in place of what was registered, under another key. An
// error leaves an open region as it is, unless there are too many.
func (m *mr) Reregister(dom verbs.PD, buf []byte, c verbs.MRConfig) error {
	p, err := own[*pd](m.d, "protection domain", dom)
	if err != nil {
		return fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	addr, err := iovaOf(buf, c)
	if err != nil {
		return err
	}
	m.ctl.Lock()
	defer m.ctl.Unlock()
	m.closeLocked()
	d := m.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.admit(kindMR, d.attr.MaxMR); err != nil {
		return fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	m.pd, m.from, m.access, m.revoke, m.addr, m.buf, m.closed = p.prot, p, c.Access, c.Revocable, addr, buf, false
	d.mrs.add(m)
	return nil
}

// iovaOf checks how buf is to be registered, and gives the address of its first
// byte.
func iovaOf(buf []byte, c verbs.MRConfig) (uint64, error) {
	if err := checkAccess(c.Access); err != nil {
		return 0, fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	switch {
	case len(buf) == 0:
		return 0, fmt.Errorf("register memory of no bytes: %w", ucs.ErrInvalid)
	case c.HasIOVA && c.Access&verbs.ZeroBased != 0 && c.IOVA != 0:
		return 0, fmt.Errorf("register %d bytes, zero-based at %#x: %w", len(buf), c.IOVA, ucs.ErrInvalid)
	case c.HasIOVA && c.IOVA+uint64(len(buf)-1) < c.IOVA:
		return 0, fmt.Errorf("register %d bytes at %#x, beyond the last address: %w", len(buf), c.IOVA, ucs.ErrInvalid)
	case c.HasIOVA:
		return c.IOVA, nil
	case c.Access&verbs.ZeroBased != 0:
		return 0, nil
	}
	return addrOf(buf), nil
}

// LKey is the key; local and remote ones are the same.
func (m *mr) LKey() uint32 { return m.key }

// RKey is the key.
func (m *mr) RKey() uint32 { return m.key }

// Addr is the address of the first byte.
func (m *mr) Addr() uint64 { return m.addr }

// Bytes is the memory, until Close.
func (m *mr) Bytes() []byte { return m.buf }

// Close forgets the key and waits until nothing of the device touches the memory
// any more; then only this handle holds it.
func (m *mr) Close() error {
	m.ctl.Lock()
	defer m.ctl.Unlock()
	m.closeLocked()
	return nil
}

func (m *mr) closeLocked() {
	if m.closed {
		return
	}
	m.closed = true
	d := m.d
	d.mrs.remove(m)
	d.quiesce()
	m.buf = nil
	d.mu.Lock()
	defer d.mu.Unlock()
	m.from.leave(kindMR)
}

// at gives n bytes at addr; nil: they are not all in the region, or it is
// closed. The slice is good until the engine leaves the pass that it is in.
//
// hot: BenchmarkFindMR.
func (m *mr) at(addr uint64, n int) []byte {
	if m.dead.Load() {
		return nil
	}
	off, size := addr-m.addr, uint64(len(m.buf))
	if off > size || uint64(n) > size-off {
		return nil
	}
	return m.buf[off : off+uint64(n) : off+uint64(n)]
}

// mrTable finds regions by key without a lock.
type mrTable struct {
	keySpace
	slots[mr]
}

// find gives the region with that key; nil: there is none.
//
// hot: BenchmarkFindMR.
func (t *mrTable) find(key uint32) *mr {
	m := t.at(t.index(key))
	if m == nil || m.key != key {
		return nil
	}
	return m
}

func (t *mrTable) add(m *mr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m.key = t.alloc()
	m.dead.Store(false)
	t.set(t.index(m.key), m)
}

// remove makes the key invalid; false: it was already.
func (t *mrTable) remove(m *mr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.dead.Swap(true) {
		return false
	}
	t.set(t.index(m.key), nil)
	t.release(m.key)
	return true
}

// empty is what a piece of no bytes names, whatever its key.
var empty [0]byte

// local gives the memory that a piece names; false: wrong key, protection,
// access or range. A piece of no bytes needs no key.
//
// Concurrency: under the receive token, or after qp.looks.
func (d *device) local(p *pd, s verbs.SGE, need verbs.Access) ([]byte, bool) {
	if s.Len == 0 {
		return empty[:], true
	}
	m := d.mrs.find(s.LKey)
	if m == nil || m.pd != p.prot || m.access&need != need {
		return nil, false
	}
	b := m.at(s.Addr, int(s.Len))
	return b, b != nil
}

// remote gives the memory that a peer names; false: wrong key, protection,
// access or range. No bytes need no key.
func (d *device) remote(p *pd, key uint32, addr uint64, n int, need verbs.Access) ([]byte, bool) {
	return d.local(p, verbs.SGE{Addr: addr, Len: uint32(n), LKey: key}, need)
}

// invalidate makes a key invalid for a work request or a peer; false: it is none
// of the domain's, or of a region that stays. The region stays open and holds its
// memory until Close.
func (d *device) invalidate(p *pd, key uint32) bool {
	m := d.mrs.find(key)
	return m != nil && m.revoke && m.pd == p.prot && d.mrs.remove(m)
}
