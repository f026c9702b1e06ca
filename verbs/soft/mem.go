package soft

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// mr is a memory region.
//
// The device holds the slice, which keeps the memory allocated and in place: Go's
// collector does not move heap objects. The device uses addresses only as offsets into
// the slice, and no hardware accesses the memory. So nothing needs to be pinned.
type mr struct {
	d         *device
	pd        *pd // the domain whose protection applies
	domain    *pd // the domain that it was created in
	key       uint32
	access    verbs.Access
	revocable bool        // work requests may invalidate the key
	addr      uint64      // iova of the first byte
	buf       []byte      // written only while no valid key refers to it, so a lookup sees a whole slice
	invalid   atomic.Bool // the key is invalid; changed under mrTable.mu
	ctl       sync.Mutex  // serialises Reregister and Close: a second Close returns when the first has finished
	closed    bool        // guarded by ctl
	windows   int         // memory windows that are bound to it; guarded by mrTable.mu
	bind      *binding    // of the binding of a memory window; nil: a region
}

const (
	knownAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic | verbs.ZeroBased |
		verbs.BindMW | verbs.HugeTLB | verbs.RelaxedOrdering // the last two are hints and have no effect
	unsupportedAccess = verbs.OnDemand | verbs.FlushGlobal | verbs.FlushPersistent
)

// Register registers buf under a new key.
func (p *pd) Register(buf []byte, c verbs.MRConfig) (verbs.MR, error) {
	m := &mr{d: p.d, closed: true}
	if err := m.Reregister(p, buf, c); err != nil {
		return nil, err
	}
	return m, nil
}

// Reregister registers buf in place of the present memory, under a new key. An invalid
// argument leaves an open region as it is, and so does a memory window that is bound to it. If the domain is closed or the limit of
// regions is reached, the region is closed.
func (m *mr) Reregister(dom verbs.PD, buf []byte, c verbs.MRConfig) error {
	p, err := objects.Own[*pd](m.d, "protection domain", dom)
	if err != nil {
		return fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	addr, err := checkRegistration(buf, c)
	if err != nil {
		return err
	}
	m.ctl.Lock()
	defer m.ctl.Unlock()
	if err := m.closeLocked(); err != nil {
		return fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	d := m.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.Admit(objects.MR, d.attr.MaxMR); err != nil {
		return fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	m.pd, m.domain, m.access, m.revocable, m.addr, m.buf, m.closed = p.protection, p, c.Access, c.Revocable, addr, buf, false
	d.mrs.add(m)
	return nil
}

// checkRegistration refuses access flags that this device does not support, and what no device
// accepts. It returns the address of the first byte.
func checkRegistration(buf []byte, c verbs.MRConfig) (addr uint64, err error) {
	if a := c.Access & unsupportedAccess; a != 0 {
		err = fmt.Errorf("access %#x of a soft device: %w", uint32(a), ucs.ErrUnsupported)
	} else {
		addr, err = objects.CheckRegistration(len(buf), addrOf(buf), knownAccess, c)
	}
	if err != nil {
		return 0, fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	return addr, nil
}

// LKey returns the key; local and remote key are equal.
func (m *mr) LKey() uint32 { return m.key }

// RKey returns the key.
func (m *mr) RKey() uint32 { return m.key }

// Addr returns the address of the first byte.
func (m *mr) Addr() uint64 { return m.addr }

// Bytes returns the memory, until Close.
func (m *mr) Bytes() []byte { return m.buf }

// Close invalidates the key and waits until the engine no longer accesses the memory. It fails
// with ucs.ErrBusy while memory windows are bound to the region.
func (m *mr) Close() error {
	m.ctl.Lock()
	defer m.ctl.Unlock()
	return m.closeLocked()
}

func (m *mr) closeLocked() error {
	if m.closed {
		return nil
	}
	d := m.d
	if !d.mrs.remove(m) && !m.invalid.Load() {
		return fmt.Errorf("close memory region: memory windows are bound to it: %w", ucs.ErrBusy)
	}
	m.closed = true
	d.quiesce()
	m.buf = nil
	d.mu.Lock()
	defer d.mu.Unlock()
	m.domain.Release(objects.MR)
	return nil
}

// at returns n bytes at addr. It returns nil if they are not all in the region, or if
// the key is invalid. The slice is valid until the engine leaves the present pass.
//
//hot:bench BenchmarkFindMR
func (m *mr) at(addr uint64, n int) []byte {
	if m.invalid.Load() {
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

// find returns the region with that key, or nil.
//
//hot:bench BenchmarkFindMR
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
	m.invalid.Store(false)
	t.set(t.index(m.key), m)
}

// remove invalidates the key. It returns false if the key was invalid already, or memory windows
// are bound to the region.
func (t *mrTable) remove(m *mr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.windows > 0 || m.invalid.Swap(true) {
		return false
	}
	t.set(t.index(m.key), nil)
	t.release(m.key)
	return true
}

// empty is the memory of scatter/gather entries without bytes.
var empty [0]byte

// local returns the memory of a scatter/gather entry. It returns false if key,
// protection domain, access or range do not match. An entry without bytes needs no key.
//
// Concurrency: under the receive token, or after qp.markMemoryUser.
func (d *device) local(p *pd, s verbs.SGE, need verbs.Access) ([]byte, bool) {
	if s.Len == 0 {
		return empty[:], true
	}
	m := d.mrs.find(s.LKey)
	if m == nil || m.pd != p.protection || m.access&need != need {
		return nil, false
	}
	b := m.at(s.Addr, int(s.Len))
	return b, b != nil
}

// remote returns the memory that a request of the peer names. It returns false if key,
// protection domain, access or range do not match. Zero bytes need no key.
func (d *device) remote(p *pd, key uint32, addr uint64, n int, need verbs.Access) ([]byte, bool) {
	return d.local(p, verbs.SGE{Addr: addr, Len: uint32(n), LKey: key}, need)
}

// invalidate invalidates a key for a work request or a request of the peer. It returns
// false if no region of the domain has the key, or the region is not revocable. The
// region keeps its memory until Close.
func (d *device) invalidate(p *pd, key uint32) bool {
	m := d.mrs.find(key)
	return m != nil && m.revocable && m.pd == p.protection && d.mrs.remove(m)
}

// memoryUsers is the set of queue pairs that have looked up memory keys outside the receive
// token since the last quiesce. Deregistration waits for these alone, so its cost
// depends on how many queue pairs were active, not on how many exist.
//
// Invariant: MR.Close first makes the key invalid, then calls quiesce, then returns the
// memory to the program. A goroutine that looked the key up before still holds one of
// these: the ownership or the posters' lock of a queue pair in the set, or the receive
// token of a device. quiesce waits for all of them.
type memoryUsers struct {
	quiesceMu sync.Mutex // one quiesce at a time: a second must also wait for those that the first took
	draining  []*qp      // those that the running quiesce waits for; guarded by waits
	lock      spinlock   // guards list
	list      []*qp      // has room for all queue pairs: the data path does not allocate
}

// markMemoryUser adds q to the set. It is called before a memory lookup by a goroutine without
// the receive token: the owner, or the holder of the posters' lock.
//
// The load pairs with the store in quiesce, which follows the invalidation of the key.
// If it is not 0, quiesce has yet to wait for the word that the caller holds. If it
// is 0, the lookup that follows finds the key invalid.
func (q *qp) markMemoryUser() {
	if q.memoryUser.Load() == 0 {
		q.d.memoryUsers.add(q)
	}
}

//go:noinline
func (l *memoryUsers) add(q *qp) {
	l.lock.lock()
	if q.memoryUser.Load() == 0 {
		l.list = append(l.list, q)
		q.memoryUser.Store(int32(len(l.list)))
	}
	l.lock.unlock()
}

// remove deletes a closed queue pair.
func (l *memoryUsers) remove(q *qp) {
	l.lock.lock()
	if at := q.memoryUser.Load(); at != 0 {
		last := len(l.list) - 1
		l.list[at-1] = l.list[last]
		l.list[at-1].memoryUser.Store(at)
		q.memoryUser.Store(0)
		l.list[last] = nil
		l.list = l.list[:last]
	}
	l.lock.unlock()
}

// quiesce waits until no goroutine uses memory of this device that it looked up before
// the call. Such a goroutine holds a receive token of a device on the same switch, or
// owns a queue pair, or copies inline data while posting.
func (d *device) quiesce() {
	if all := d.conf.Switch.devices.Load(); all != nil && d.kind == overInproc {
		for _, o := range *all {
			if o != nil {
				o.awaitReceivers()
			}
		}
	}
	d.awaitReceivers()
	l := &d.memoryUsers
	l.quiesceMu.Lock()
	defer l.quiesceMu.Unlock()
	l.lock.lock()
	l.draining = append(l.draining[:0], l.list...)
	clear(l.list)
	l.list = l.list[:0]
	for _, q := range l.draining {
		q.memoryUser.Store(0)
	}
	l.lock.unlock()
	for _, q := range l.draining {
		// The goroutine that is posting now publishes its work requests or releases the
		// posters' lock.
		t := q.sq.tail.pos()
		for k := 0; q.word.Load()&ownPost != 0 && q.sq.tail.pos() == t; k++ {
			spin(k)
		}
		q.awaitRelease()
	}
	clear(l.draining)
}
