package soft

import "sync/atomic"

// spinlock is a spinlock, held for a few instructions and never during a system call.
type spinlock struct{ word atomic.Uint32 }

func (l *spinlock) lock() {
	for k := 0; !l.word.CompareAndSwap(0, 1); k++ {
		spin(k)
	}
}

func (l *spinlock) unlock() { storeRelease32(&l.word, 0) }
