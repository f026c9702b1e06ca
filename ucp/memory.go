package ucp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucp/internal/keycodec"
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// MemHandle is memory that peers reach with a [RemoteKey]. Its methods are safe for use
// from any goroutine. The program has to order its own accesses to the memory with
// those of peers.
type MemHandle struct {
	ctx       *Context
	buf       []byte
	key       Key
	base      uint64
	access    uct.MemFlags
	allocated bool
	regions   []memRegion
	refused   []uct.Refusal
	emul      *emulMem // nil: no peer may reach the memory by emulation

	// closePending forbids new operations to use the memory. Close stores it before it looks
	// for operations in flight, each under the lock of its worker. An operation begins
	// under the same lock.
	closePending atomic.Bool
	closeMu      sync.Mutex // guards err, and lets Close run once
	closed       atomic.Bool
	err          error // returned by Close
}

// memRegion is the memory as registered with one domain.
type memRegion struct {
	uct.Mem
	transport uct.TransportID
	domain    int // index among the domains of the context
	name      string
}

// Register registers buf, which the program owns, so that peers reach it over every
// transport that can. The memory is pinned, and the library references it, until Close. An
// empty buf is allowed; only empty transfers reach it.
//
// A transport that refuses is skipped (see [MemHandle.Query]). Register
// fails if all refuse.
func (x *Context) Register(buf []byte, mc MemConfig) (*MemHandle, error) {
	m := &MemHandle{ctx: x, buf: buf, base: addressOf(buf)}
	if err := m.open(mc, -1); err != nil {
		return nil, fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	return m, nil
}

// Allocate maps n bytes of zeroed memory outside the Go heap. Every transport reaches it in
// its best way; shm uses loads and stores. As with Register, n may be 0.
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

// open allocates n bytes, or takes m.buf if n is negative, and registers the memory
// with all domains.
func (m *MemHandle) open(mc MemConfig, n int) error {
	f, err := mc.flags()
	if err != nil {
		return err
	}
	m.access = f & uct.MemRemote
	for _, need := range [...]Feature{FeatureRMA, FeatureAtomics} { // rights that the program asked for by name
		if st := m.ctx.features.has(need); st != ucs.OK && mc.Access != 0 && m.access&need.access() != 0 {
			return statusErr(st)
		}
	}
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

// fill allocates and registers the memory, as open describes.
func (m *MemHandle) fill(domains []memDomain, f uct.MemFlags, n int) error {
	if n == 0 || n < 0 && len(m.buf) == 0 {
		return nil
	}
	owner := -1 // the domain that allocated the memory
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
		return fmt.Errorf("no transport registered it%s", reasons(m.refused))
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

// pack makes the packed key.
func (m *MemHandle) pack() error {
	granted := m.access & m.ctx.features.access()
	v := keycodec.View{Base: m.base, Len: uint64(len(m.buf)), Access: granted, Owner: m.ctx.id}
	for _, r := range m.regions {
		v.Entries = append(v.Entries, keycodec.Entry{Transport: r.transport, Domain: uint8(r.domain), Key: r.AppendKey(nil)}) // an address holds as many domains, so the index fits
	}
	if len(m.buf) > 0 && granted != 0 {
		if m.emul = m.ctx.emul.add(m.buf, granted); m.emul != nil {
			v.Entries = append(v.Entries, keycodec.Entry{Transport: keycodec.Emulated, Key: binary.LittleEndian.AppendUint64(nil, uint64(m.emul.key))})
		}
	}
	key, err := v.Append(nil)
	m.key = key
	return err
}

// memDomain is a domain with the first transport that uses it.
type memDomain struct {
	openDomain
	number    int // index among the domains of the context
	transport uct.TransportID
	kind      uct.DeviceKind
}

// memDomains returns the domains in the order in which they are asked to allocate. Memory
// of shm serves peers on the host best. Memory of a network device serves other peers.
// Memory of self serves only self.
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

// Bytes returns the memory. The slice is valid until Close; after Close, Bytes returns nil.
func (m *MemHandle) Bytes() []byte {
	if m.closed.Load() {
		return nil
	}
	return m.buf
}

// Key returns a copy of the packed key, which peers unpack.
func (m *MemHandle) Key() Key { return slices.Clone(m.key) }

// Load64 reads the eight bytes at off as a little-endian integer. If their address is a
// multiple of eight, it is one atomic load. A loop that waits for a peer's put or atomic
// then never sees half of it. An offset out of range panics, as an index does.
func (m *MemHandle) Load64(off int) uint64 { return load64(m.Bytes()[off : off+8]) }

// Close revokes the memory and then releases it. A peer's access that begins later fails
// at the peer, and none is carried out after Close. Close is idempotent.
//
// Errors: Close returns ErrBusy, and changes nothing, while an operation of this program
// that has not completed reads or writes the memory. Only operations of ThreadMulti workers
// are found; those of other workers, and of Threads, must have completed. If a peer's access could not be
// stopped in time, memory of the program stays exposed to it. The error reports that, and
// the memory stays pinned for good.
func (m *MemHandle) Close() error {
	m.closeMu.Lock()
	defer m.closeMu.Unlock()
	if m.closed.Load() {
		return m.err
	}
	m.closePending.Store(true)
	// Only the state of ThreadMulti workers may be read from here.
	var ws []*Worker
	m.ctx.mu.Lock()
	for c := range m.ctx.owned {
		if w, ok := c.(*Worker); ok && w.t.am.multi && w.t.parent == nil {
			ws = append(ws, w)
		}
	}
	m.ctx.mu.Unlock()
	for _, w := range ws {
		w.t.lock()
		used := w.t.slab.uses(m.buf)
		w.t.unlock()
		if used {
			m.closePending.Store(false)
			return fmt.Errorf("close memory of %d bytes at %#x: an operation uses it: %w", len(m.buf), m.base, ErrBusy)
		}
	}
	m.closed.Store(true)
	if err := m.closeRegions(); err != nil {
		m.err = fmt.Errorf("close memory of %d bytes at %#x: %w", len(m.buf), m.base, err)
	}
	m.ctx.disown(m) // last: a context that closes at the same time waits here for m.closing
	return m.err
}

// closeRegions revokes all regions first, then closes them in reverse order, so that of the
// domain that allocated the memory last.
func (m *MemHandle) closeRegions() error {
	m.ctx.emul.remove(m.emul)
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

// Access is a set of rights to registered memory. The zero Access grants all of them.
type Access uint8

// Access rights. The local program can always access its own memory.
const (
	AccessLocal        Access = 1 << iota // local access alone; no peer reaches the memory
	AccessRemotePut                       // peers may write it
	AccessRemoteGet                       // peers may read it
	AccessRemoteAtomic                    // peers may perform atomics on it
)

const accessAll = AccessLocal | AccessRemotePut | AccessRemoteGet | AccessRemoteAtomic

// MemConfig configures how memory is registered or allocated. The zero value is valid.
type MemConfig struct {
	// Access is the set of the peers' rights. 0: all that the features of the context allow.
	Access Access
	// NoPin leaves memory unpinned, or its pages unallocated, until first use, if the
	// transport supports that.
	NoPin bool
	// Huge asks for huge pages; it is a hint.
	Huge bool
}

// flags returns the configuration as uct flags.
func (c MemConfig) flags() (uct.MemFlags, error) {
	if c.Access&^accessAll != 0 {
		return 0, fmt.Errorf("unknown Access %#x: %w", c.Access&^accessAll, ErrInvalid)
	}
	a := c.Access
	if a == 0 {
		a = accessAll
	}
	var f uct.MemFlags
	for _, m := range []struct {
		set  bool
		flag uct.MemFlags
	}{
		{a&AccessRemotePut != 0, uct.MemRemotePut},
		{a&AccessRemoteGet != 0, uct.MemRemoteGet},
		{a&AccessRemoteAtomic != 0, uct.MemRemoteAtomic},
		{c.NoPin, uct.MemNoPin},
		{c.Huge, uct.MemHuge},
	} {
		if m.set {
			f |= m.flag
		}
	}
	return f, nil
}

// MemInfo describes registered memory.
type MemInfo struct {
	// Base is the address of the first byte. Len is the size in bytes.
	Base uint64
	Len  int
	// Access is the set of rights in force, with AccessLocal.
	Access Access
	// Allocated reports whether Context.Allocate made the memory.
	Allocated bool
	// Transports lists the transports that reach the memory ("shm", "rc/eth0"). Refused
	// lists the others with their reasons.
	Transports []string
	Refused    []uct.Refusal
}

// Query returns a description of the memory.
func (m *MemHandle) Query() MemInfo {
	i := MemInfo{
		Base: m.base, Len: len(m.buf), Access: AccessLocal, Allocated: m.allocated,
		Refused: slices.Clone(m.refused),
	}
	for flag, a := range map[uct.MemFlags]Access{
		uct.MemRemotePut: AccessRemotePut, uct.MemRemoteGet: AccessRemoteGet, uct.MemRemoteAtomic: AccessRemoteAtomic,
	} {
		if m.access&m.ctx.features.access()&flag != 0 {
			i.Access |= a
		}
	}
	for _, r := range m.regions {
		i.Transports = append(i.Transports, r.name)
	}
	return i
}

// uses reports whether an operation in progress uses memory of buf.
func (b *slab) uses(buf []byte) bool {
	for i := range b.Slots {
		s := &b.Slots[i]
		if s.State != request.StateLive {
			continue
		}
		switch s.Op {
		case request.TagSend, request.TagSendV, request.TagSendSync, request.TagRecv, request.AMSend, request.AMRecv, request.AMFetch, request.Put, request.Get:
		default: // it does not use the caller's memory until it completes
			continue
		}
		if overlap(b.Bufs[i], buf) {
			return true
		}
		for _, p := range b.vecs[uint32(i)].pieces {
			if overlap(p, buf) {
				return true
			}
		}
	}
	return false
}

// overlap reports whether a and b have a byte in common.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := addressOf(a), addressOf(b)
	return x-y < uint64(len(b)) || y-x < uint64(len(a))
}
