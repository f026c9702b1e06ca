package ucp

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// swTable is the memory of a context that peers reach by messages, by number.
// Workers look regions up without a lock, while others come and go.
type swTable struct {
	mu   sync.Mutex
	list atomic.Pointer[[]atomic.Pointer[swMem]] // 0 is none
	free []uint32
	next uint32
}

// swMem is a region in the table.
type swMem struct {
	key    swKey
	base   uint64
	buf    []byte
	access uct.MemFlags
	users  atomic.Int64 // accesses under way; with swClosed no more begin
}

// swKey names a region of a context: its number, and above it a random tag by
// which a number that is used again is told from what it stood for before.
type swKey uint64

const (
	swNumberBits = 24
	swMaxMems    = 1 << swNumberBits
	swClosed     = -1 << 62
)

func (k swKey) number() uint32 { return uint32(k) % swMaxMems }

// add makes buf, not empty, reachable; nil where the table is full.
func (t *swTable) add(buf []byte, access uct.MemFlags) *swMem {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.next + 1
	if k := len(t.free); k > 0 {
		n, t.free = t.free[k-1], t.free[:k-1]
	} else if n == swMaxMems {
		return nil
	} else {
		t.next = n
	}
	m := &swMem{key: swKey(randomWord())<<swNumberBits | swKey(n), base: addressOf(buf), buf: buf, access: access}
	list := t.list.Load()
	if list == nil || int(n) >= len(*list) {
		list = t.growLocked(list)
	}
	(*list)[n].Store(m)
	return m
}

func (t *swTable) growLocked(old *[]atomic.Pointer[swMem]) *[]atomic.Pointer[swMem] {
	list := make([]atomic.Pointer[swMem], 16)
	if old != nil {
		list = make([]atomic.Pointer[swMem], 2*len(*old))
		for i := range *old {
			list[i].Store((*old)[i].Load())
		}
	}
	t.list.Store(&list)
	return &list
}

// remove takes m, which may be nil, out and waits for the accesses under way, of
// which each is a copy of bounded length.
func (t *swTable) remove(m *swMem) {
	if m == nil || m.users.Load() < 0 {
		return
	}
	m.users.Add(swClosed)
	for m.users.Load() != swClosed {
		runtime.Gosched()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	(*t.list.Load())[m.key.number()].Store(nil)
	t.free = append(t.free, m.key.number())
}

// enter begins an access to n bytes at addr, which leave ends. Whatever does not
// fit, a key of memory that is closed among it, is RemoteAccess.
func (t *swTable) enter(key swKey, addr, n uint64, need uct.MemFlags) (*swMem, []byte, ucs.Status) {
	list := t.list.Load()
	if list == nil || int(key.number()) >= len(*list) {
		return nil, nil, ucs.RemoteAccess
	}
	m := (*list)[key.number()].Load()
	if m == nil || m.key != key || m.access&need == 0 {
		return nil, nil, ucs.RemoteAccess
	}
	off, size := addr-m.base, uint64(len(m.buf))
	if off > size || n > size-off {
		return nil, nil, ucs.RemoteAccess
	}
	if m.users.Add(1) < 0 {
		m.leave()
		return nil, nil, ucs.RemoteAccess
	}
	return m, m.buf[off:][:n], ucs.OK
}

func (m *swMem) leave() { m.users.Add(-1) }
