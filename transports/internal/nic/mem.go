package nic

import (
	"errors"
	"fmt"
	"sync"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// Mem is a registered region. It is registered twice: once for the owner's work requests, and
// once for peers. Revoke invalidates only the second.
//
// Concurrency: any goroutine.
type Mem struct {
	d         *Domain
	bytes     []byte
	addr      uint64 // address of the first byte
	lkey      uint32
	local     verbs.MR
	allocated bool // mapped by Allocate
	key       packedKey

	mu     sync.Mutex // guards the rest
	remote verbs.MR   // nil: peers have no access, or it was revoked
	spare  verbs.MR   // the closed registration for peers, for reuse
	closed bool
}

// Register implements uct.Domain.
func (d *Domain) Register(buf []byte, f uct.MemFlags) (uct.Mem, error) {
	m, err := d.register(buf, f)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Allocate implements uct.Domain.
func (d *Domain) Allocate(n int, f uct.MemFlags) (uct.Mem, error) {
	if n <= 0 || n > d.attr.MaxAllocate {
		return nil, fmt.Errorf("allocate %d bytes, want 1 to %d: %w", n, d.attr.MaxAllocate, ucs.ErrInvalid)
	}
	buf, err := mapped.MapAnonymous(n)
	if err != nil {
		return nil, fmt.Errorf("allocate: %w", err)
	}
	m, err := d.register(buf, f)
	if err != nil {
		return nil, errors.Join(err, mapped.Unmap(buf))
	}
	m.allocated = true
	return m, nil
}

func (d *Domain) register(buf []byte, f uct.MemFlags) (*Mem, error) {
	m := &Mem{d: d, closed: true}
	if err := m.Reregister(buf, f); err != nil {
		return nil, err
	}
	return m, nil
}

// Reregister implements uct.Reusable.
func (m *Mem) Reregister(buf []byte, f uct.MemFlags) error {
	if len(buf) == 0 {
		return fmt.Errorf("register memory of no bytes: %w", ucs.ErrInvalid)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.openLocked(buf, f&uct.MemRemote)
	if err != nil {
		return fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	return nil
}

func (m *Mem) openLocked(buf []byte, f uct.MemFlags) error {
	if !m.closed {
		return fmt.Errorf("the region is open: %w", ucs.ErrBusy)
	}
	if err := m.d.enter(&m.d.regions); err != nil {
		return err
	}
	m.bytes, m.addr = buf, AddressOf(buf)
	if err := m.registerLocked(f); err != nil {
		m.bytes = nil
		m.d.leave(&m.d.regions)
		return err
	}
	m.closed = false
	return nil
}

func (m *Mem) registerLocked(f uct.MemFlags) (err error) {
	if err = m.registerAs(&m.local, verbs.LocalWrite); err != nil {
		return err
	}
	m.lkey = m.local.LKey()
	m.key = packedKey{flags: f, base: m.addr, size: uint64(len(m.bytes))}
	if f == 0 {
		return nil
	}
	if err = m.registerAs(&m.spare, accessOf(f)); err != nil {
		return errors.Join(err, m.local.Close())
	}
	m.remote, m.spare = m.spare, nil
	m.key.rkey, m.key.base = m.remote.RKey(), m.remote.Addr()
	return nil
}

// registerAs registers the region in *r, which is nil or a closed registration. A closed one is
// reused if the device supports that.
func (m *Mem) registerAs(r *verbs.MR, a verbs.Access) error {
	c := verbs.MRConfig{Access: a}
	if old, ok := (*r).(verbs.Reusable); ok {
		return old.Reregister(m.d.pd, m.bytes, c)
	}
	made, err := m.d.pd.Register(m.bytes, c)
	if err == nil {
		*r = made
	}
	return err
}

func accessOf(f uct.MemFlags) verbs.Access {
	a := verbs.LocalWrite
	for _, c := range []struct {
		flag   uct.MemFlags
		access verbs.Access
	}{{uct.MemRemotePut, verbs.RemoteWrite}, {uct.MemRemoteGet, verbs.RemoteRead}, {uct.MemRemoteAtomic, verbs.RemoteAtomic}} {
		if f&c.flag != 0 {
			a |= c.access
		}
	}
	return a
}

// Bytes implements uct.Mem.
func (m *Mem) Bytes() []byte { return m.bytes }

// AppendKey implements uct.Mem.
func (m *Mem) AppendKey(b []byte) []byte { return m.key.append(b) }

// Revoke implements uct.Mem. When it returns OK, no access of a peer is in flight. Timeout: the
// device did not confirm that.
func (m *Mem) Revoke() uct.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.revokeLocked(); err != nil {
		return ucs.Timeout
	}
	return ucs.OK
}

func (m *Mem) revokeLocked() error {
	if m.remote == nil {
		return nil
	}
	m.remote, m.spare = nil, m.remote
	return m.spare.Close()
}

// Close implements uct.Mem.
func (m *Mem) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	err := errors.Join(m.revokeLocked(), m.local.Close())
	if m.allocated {
		err = errors.Join(err, mapped.Unmap(m.bytes))
	}
	m.bytes, m.allocated = nil, false
	m.d.leave(&m.d.regions)
	if err != nil {
		return fmt.Errorf("close region: %w", err)
	}
	return nil
}

// SGE fills a scatter/gather entry with v.Buf, which lies in the registered region v.Mem. It
// returns false if it does not, or if v.Mem is not a region of this domain.
//
//hot:bench BenchmarkPiece
func (d *Domain) FillSGE(v *uct.Vec, s *verbs.SGE) bool {
	m, ok := v.Mem.(*Mem)
	if !ok || m.d != d {
		return false
	}
	addr := AddressOf(v.Buf)
	if off := addr - m.addr; off > uint64(len(m.bytes)) || uint64(len(v.Buf)) > uint64(len(m.bytes))-off {
		return false
	}
	s.Addr, s.Len, s.LKey = addr, uint32(len(v.Buf)), m.lkey
	return true
}
