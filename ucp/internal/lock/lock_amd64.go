//go:build !race

package lock

// Unlock releases the lock. On amd64 a plain store is a release store (TSO), and the
// compiler keeps the order of stores. It pairs with the compare-and-swap in TryLock.
//
//gcassert:inline
func (l *Spin) Unlock() { l.held = 0 }
