package ucp

import "github.com/goucx/goucx/ucs/cpu"

// thread is a set of lanes of a worker that one goroutine at a time uses. A worker has one
// thread; all its Endpoints belong to it.
type thread struct {
	w *Worker
	// eps is Worker.eps, or empty if every call must take the lock. The bounds check of a
	// fast path then fails, and the call takes the slow path.
	eps    []epSlot
	lanes  []lane // by index; lane 0 is none and refuses everything
	locked bool   // every call takes the worker's lock: ThreadMulti, or the worker is closed
}

// lock and unlock guard the worker with ThreadMulti. With other modes they do nothing.
func (t *thread) lock() {
	if t.locked {
		t.w.lockShared()
	}
}

func (t *thread) unlock() {
	if t.locked {
		t.w.unlockShared()
	}
}

// unlockForCallback and relockAfterCallback enclose a callback of the program. With ThreadMulti the callback
// runs without the worker's lock, so that other goroutines may post. They cannot progress,
// because the caller holds the progress ownership. Pointers into the slab, the lanes and
// the rx connections are invalid after relockAfterCallback.
func (w *Worker) unlockForCallback() {
	if w.am.multi || w.closed.Load() {
		w.unlockShared()
	}
}

func (w *Worker) relockAfterCallback() {
	if w.am.multi || w.closed.Load() {
		w.lockPass()
	}
}

// giveWay waits giveWayLooks pauses for goroutines that want to post. If none of them got
// the lock in that time, it yields the processor up to giveWayYields times.
const (
	giveWayLooks  = 256
	giveWayYields = 64
)

// lockShared takes the worker's lock for a post or a look. A goroutine that progresses in a
// loop holds the lock nearly all the time. So lockSlow counts the waiting posts in want,
// and passes of progress let them go first.
func (w *Worker) lockShared() {
	if !w.mu.TryLock() {
		w.lockSlow()
	}
}

//go:noinline
func (w *Worker) lockSlow() {
	w.lockWaiters.Add(1)
	w.mu.Lock()
	w.granted.Add(1)
	w.lockWaiters.Add(-1)
}

// lockPass takes the worker's lock for a pass of progress.
func (w *Worker) lockPass() {
	if w.lockWaiters.Load() > 0 {
		w.giveWay()
	}
	w.mu.Lock()
}

// giveWay lets goroutines that wait for the lock to post go first. If there are more
// goroutines or threads than processors, a waiting one may not run. It then gets the lock
// only if this pass yields its processor.
//
//go:noinline
func (w *Worker) giveWay() {
	granted := w.granted.Load()
	for k := 0; w.lockWaiters.Load() > 0; k++ {
		switch {
		case k < giveWayLooks:
			cpu.Pause()
		case k < giveWayLooks+giveWayYields && w.granted.Load() == granted:
			cpu.Yield()
		default:
			return
		}
	}
}

// unlockShared releases the lock and wakes the goroutines whose operations completed.
func (w *Worker) unlockShared() {
	b := &w.owner
	if b.toWake == nil && !b.sleeping {
		w.mu.Unlock()
		return
	}
	w.unlockSlow()
}

//go:noinline
func (w *Worker) unlockSlow() {
	b := &w.owner
	// The goroutine in poll runs the callbacks that became due without progress.
	signal := b.sleeping && (b.mustWake || len(w.dueCallbacks)+len(w.am.failureCalls) > 0)
	x := b.toWake
	b.toWake, b.toWakeTail = nil, &b.toWake
	w.mu.Unlock()
	if signal {
		w.Signal()
	}
	for x != nil {
		next := x.wakeNext
		x.wakeNext = nil
		x.wake(w)
		x = next
	}
}
