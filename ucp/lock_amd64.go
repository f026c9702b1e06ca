//go:build !race

package ucp

// Unlock gives the lock back. A plain store is a release on amd64 (TSO), and the
// compiler keeps stores in order.
//
//gcassert:inline
func (l *spinLock) Unlock() { l.held = 0 }
