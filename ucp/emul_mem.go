package ucp

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// emulTable holds the memory of a context that peers reach by emulation, by number. Workers
// look regions up without a lock while other goroutines add and remove regions.
//
// Invariant: a store to list[n] happens before any peer can have the key, and remove
// waits until no access uses the buffer. enter counts its access in users before it
// uses the buffer. If remove has set emulClosed before, the count is negative and enter
// does not use it.
type emulTable struct {
	mu   sync.Mutex
	list atomic.Pointer[[]atomic.Pointer[emulMem]] // entry 0 is none
	free []uint32
	next uint32
}

// emulMem is a region in the table.
type emulMem struct {
	key    emulKey
	base   uint64
	buf    []byte
	access uct.MemFlags
	users  atomic.Int64 // accesses in progress; with emulClosed added no more begin
}

// emulKey identifies a region of a context: its number, and above it a random tag. The tag
// differs when the number is reused.
type emulKey uint64

const (
	emulNumberBits = 24
	emulMaxMems    = 1 << emulNumberBits
	emulClosed     = -1 << 62
)

func (k emulKey) number() uint32 { return uint32(k) % emulMaxMems }

// add makes buf, which is not empty, reachable. It returns nil if the table is full.
func (t *emulTable) add(buf []byte, access uct.MemFlags) *emulMem {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.next + 1
	if k := len(t.free); k > 0 {
		n, t.free = t.free[k-1], t.free[:k-1]
	} else if n == emulMaxMems {
		return nil
	} else {
		t.next = n
	}
	m := &emulMem{key: emulKey(randomWord())<<emulNumberBits | emulKey(n), base: addressOf(buf), buf: buf, access: access}
	list := t.list.Load()
	if list == nil || int(n) >= len(*list) {
		list = t.growLocked(list)
	}
	(*list)[n].Store(m)
	return m
}

func (t *emulTable) growLocked(old *[]atomic.Pointer[emulMem]) *[]atomic.Pointer[emulMem] {
	list := make([]atomic.Pointer[emulMem], 16)
	if old != nil {
		list = make([]atomic.Pointer[emulMem], 2*len(*old))
		for i := range *old {
			list[i].Store((*old)[i].Load())
		}
	}
	t.list.Store(&list)
	return &list
}

// remove removes m from the table and waits for the accesses in progress. Each is a copy of
// bounded length. m may be nil.
func (t *emulTable) remove(m *emulMem) {
	if m == nil || m.users.Load() < 0 {
		return
	}
	m.users.Add(emulClosed)
	for m.users.Load() != emulClosed {
		runtime.Gosched()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	(*t.list.Load())[m.key.number()].Store(nil)
	t.free = append(t.free, m.key.number())
}

// acquire begins an access to n bytes at addr; leave ends it. It returns RemoteAccess if the
// range, the right or the key does not fit, or the memory was closed.
func (t *emulTable) acquire(key emulKey, addr, n uint64, need uct.MemFlags) (*emulMem, []byte, ucs.Status) {
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
		m.release()
		return nil, nil, ucs.RemoteAccess
	}
	return m, m.buf[off:][:n], ucs.OK
}

func (m *emulMem) release() { m.users.Add(-1) }
