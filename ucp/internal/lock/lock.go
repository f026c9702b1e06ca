// Package lock has the lock of a worker that any goroutine may use.
package lock

import (
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucs/cpu"
)

// Spin is a mutual exclusion lock for short critical sections. A goroutine holds it for one
// post or one pass of progress, and never during a sleep or a callback. So a goroutine that
// finds it taken tries again instead of queueing. The zero Spin is free.
//
// Unlock is a plain store on processors that keep stores in order. With
// sync.Mutex, unlocking costs as much as locking, and the two take a third of the
// time of a short message.
//
// The lock has no queue and is not fair. A goroutine that takes it in a loop has to let the
// others go first.
//
// The scheduler may preempt a goroutine that holds the lock. The waiting goroutines then
// yield their processors so that it runs again.
type Spin struct {
	held uint32 // 1: taken. Lock sets it by compare-and-swap; Unlock clears it by a release store
}

// TryLock takes the lock if it is free, and reports whether it did.
//
//gcassert:inline
func (l *Spin) TryLock() bool {
	return atomic.CompareAndSwapUint32(&l.held, 0, 1)
}

// Lock takes the lock.
func (l *Spin) Lock() {
	if !l.TryLock() {
		l.lockSlow()
	}
}

// lockSlow looks at a taken lock lockTries times with pauses, then lockYields times with a
// yield of the processor after each look. Then it sleeps lockSleep between looks: the holder
// does something slow, such as mapping memory, or has no processor.
//
// Each of the first lockTries looks comes after twice as many pauses as the one before, up
// to lockPauses (2-5 us). So the lock moves between cores once in some tens of operations,
// not with each operation. That is more than twice as fast (BenchmarkWaiters).
const (
	lockTries  = 16
	lockPauses = 128
	lockYields = 1024
	lockSleep  = 100 * time.Microsecond
)

//go:noinline
func (l *Spin) lockSlow() {
	for k := 0; ; k++ {
		switch {
		case atomic.LoadUint32(&l.held) == 0 && l.TryLock():
			return
		case k < lockTries:
			for range min(1<<k, lockPauses) {
				cpu.Pause()
			}
		case k < lockTries+lockYields:
			cpu.Yield()
		default:
			time.Sleep(lockSleep)
		}
	}
}
