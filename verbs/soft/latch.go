package soft

import "sync/atomic"

// latch is a spinlock, held for a few instructions and never during a system call.
type latch struct{ word atomic.Uint32 }

func (l *latch) lock() {
	for k := 0; !l.word.CompareAndSwap(0, 1); k++ {
		relax(k)
	}
}

func (l *latch) unlock() { storeRelease32(&l.word, 0) }
