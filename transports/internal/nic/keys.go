package nic

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Key is an unpacked remote key. It does not change while it is held.
type Key struct {
	base, size uint64
	flags      uct.MemFlags
	// RKey is the R_Key for work requests.
	RKey uint32
}

// Allows reports whether the key permits the access want to n bytes at addr: OK, else
// InvalidParam.
//
//hot:bench BenchmarkKey
func (k *Key) Allows(addr uint64, n int, want uct.MemFlags) uct.Status {
	if off := addr - k.base; k.flags&want == 0 || off > k.size || uint64(n) > k.size-off {
		return ucs.InvalidParam
	}
	return ucs.OK
}

const keyChunk = 256

// keyTable maps keys to their contents. A uct.RKey is an index plus one.
//
// Concurrency: any goroutine. Data paths read it without a lock: a chunk never moves, and an
// entry does not change while its key is held.
type keyTable struct {
	chunks atomic.Pointer[[]*[keyChunk]Key] // copied on write

	mu   sync.Mutex // guards the rest
	free []uct.RKey
	next uct.RKey
}

var noKey Key // allows nothing

// Key returns the contents of a key; for one that is not held, a key that allows nothing.
//
//hot:bench BenchmarkKey
func (d *Domain) Key(k uct.RKey) *Key {
	if chunks := d.keys.chunks.Load(); chunks != nil {
		if c := uint64(k-1) / keyChunk; c < uint64(len(*chunks)) {
			return &(*chunks)[c][uint64(k-1)%keyChunk]
		}
	}
	return &noKey
}

// UnpackKey implements uct.Domain. It does not check that the region still exists; the first
// access does.
func (d *Domain) UnpackKey(key []byte) (uct.RKey, error) {
	var p packedKey
	if err := p.parse(key); err != nil {
		return 0, fmt.Errorf("unpack %s key: %w", d.t.Name, err)
	}
	t := &d.keys
	t.mu.Lock()
	defer t.mu.Unlock()
	var k uct.RKey
	if n := len(t.free); n > 0 {
		k, t.free = t.free[n-1], t.free[:n-1]
	} else {
		if t.next%keyChunk == 0 { // the last chunk is full
			var list []*[keyChunk]Key
			if old := t.chunks.Load(); old != nil {
				list = append(list, *old...)
			}
			list = append(list, new([keyChunk]Key))
			t.chunks.Store(&list)
		}
		t.next++
		k = t.next
	}
	*d.Key(k) = Key{base: p.base, size: p.size, flags: p.flags, RKey: p.rkey}
	return k, nil
}

// KeyAttr implements uct.Domain.
func (d *Domain) KeyAttr(k uct.RKey) (a uct.KeyAttr) {
	f := d.Key(k).flags
	if f&uct.MemRemotePut != 0 {
		a.Ops |= d.t.RMA & uct.OpsPut
	}
	if f&uct.MemRemoteGet != 0 {
		a.Ops |= d.t.RMA & uct.OpsGet
	}
	if f&uct.MemRemoteAtomic != 0 && d.t.Atomic64 != 0 {
		a.Ops |= d.t.RMA & uct.OpAtomics
		a.Atomic64 = d.t.Atomic64
	}
	return a
}

// ReleaseKey implements uct.Domain. It ignores a key that is not held.
func (d *Domain) ReleaseKey(k uct.RKey) {
	t := &d.keys
	t.mu.Lock()
	defer t.mu.Unlock()
	e := d.Key(k)
	if e.size == 0 {
		return
	}
	*e = Key{}
	t.free = append(t.free, k)
}
