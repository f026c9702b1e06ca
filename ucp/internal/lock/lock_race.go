//go:build race

package lock

import "sync/atomic"

// Unlocks is the number of calls of Unlock of all locks. Only builds with the race detector count
// them, for tests.
var Unlocks atomic.Uint64

// Unlock releases the lock. The store pairs with the compare-and-swap in TryLock.
func (l *Spin) Unlock() {
	Unlocks.Add(1)
	atomic.StoreUint32(&l.held, 0)
}
