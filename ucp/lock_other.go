//go:build !amd64 || race

package ucp

import "sync/atomic"

// Unlock releases the lock. The store pairs with the compare-and-swap in TryLock.
//
//gcassert:inline
func (l *spinLock) Unlock() { atomic.StoreUint32(&l.held, 0) }
