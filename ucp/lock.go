package ucp

import (
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucs/cpu"
)

// spinLock guards a worker of ThreadMulti. It is held for one post or one pass
// of progress and never over a sleep or a callback, so who finds it taken tries
// again instead of queueing. Giving it back is a plain store where the processor
// keeps stores in order: with sync.Mutex it costs as much as taking it, and the
// two are a third of a short message. Nobody queues, so nobody is first: passes
// of progress, which come in a loop, give way to Worker.want.
//
// A goroutine that the scheduler takes away while it holds the lock comes back
// in its turn: the others offer their processors.
type spinLock struct {
	held uint32 // 1: taken. Taken by compare-and-swap, given back by a release store
}

// TryLock takes the lock where it is free.
//
//gcassert:inline
func (l *spinLock) TryLock() bool {
	return atomic.CompareAndSwapUint32(&l.held, 0, 1)
}

// Lock takes the lock.
func (l *spinLock) Lock() {
	if !l.TryLock() {
		l.lockSlow()
	}
}

// How often a lock that is taken is looked at before the processor is offered to
// others, and how often that is done before the goroutine sleeps between looks:
// the holder is slow, as when it maps memory, or there is no processor for it.
//
// Each look comes after twice as many pauses as the one before, up to lockPauses
// (2-5 us): the lock then goes from core to core once in some tens of operations
// and not with each of them, which is more than twice as fast (BenchmarkWaiters).
const (
	lockTries  = 16
	lockPauses = 128
	lockYields = 1024
	lockNap    = 100 * time.Microsecond
)

//go:noinline
func (l *spinLock) lockSlow() {
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
			time.Sleep(lockNap)
		}
	}
}
