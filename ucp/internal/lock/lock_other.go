//go:build !amd64 && !race

package lock

import "sync/atomic"

// Unlock releases the lock. The store pairs with the compare-and-swap in TryLock.
//
//gcassert:inline
func (l *Spin) Unlock() { atomic.StoreUint32(&l.held, 0) }
