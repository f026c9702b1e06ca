//go:build !amd64 || race

package ucp

import "sync/atomic"

// Unlock gives the lock back.
//
//gcassert:inline
func (l *spinLock) Unlock() { atomic.StoreUint32(&l.held, 0) }
