//go:build linux && cgo && ibverbs

package ibv

import (
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/verbs"
)

// kept holds completions that purge took from a queue and that belong to other queue pairs. Poll
// returns them first.
//
// The kernel's Soft-RoCE leaves the completions of a destroyed or reset queue pair in the queue.
// They cannot be recognised later: after a reset the number is the same, and the kernel may
// reuse that of a destroyed one.
type kept struct {
	n   atomic.Int32 // len(wcs)
	mu  sync.Mutex
	wcs []verbs.WC
}

// purge removes the completions of a queue pair that generates no more.
func (c *cq) purge(num verbs.QPN) {
	k := &c.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	rest := k.wcs[:0]
	for _, w := range k.wcs {
		if w.QPN != num {
			rest = append(rest, w)
		}
	}
	k.wcs = rest
	var wcs [16]verbs.WC
	for n := len(wcs); n == len(wcs); {
		n = c.poll(wcs[:])
		for _, w := range wcs[:max(0, n)] {
			if w.QPN != num {
				k.wcs = append(k.wcs, w)
			}
		}
	}
	k.n.Store(int32(len(k.wcs)))
}

// pollKept is Poll while completions are kept.
//
//go:noinline
func (c *cq) pollKept(wcs []verbs.WC) int {
	k := &c.kept
	k.mu.Lock()
	n := copy(wcs, k.wcs)
	k.wcs = k.wcs[n:]
	if len(k.wcs) == 0 {
		k.wcs = nil
	}
	k.n.Store(int32(len(k.wcs)))
	k.mu.Unlock()
	if n == len(wcs) {
		return n
	}
	return n + max(0, c.poll(wcs[n:]))
}
