package ucp

import "github.com/goucx/goucx/ucs/cpu"

// Thread is a set of lanes of a worker that one goroutine at a time uses. A
// worker has one; all its Endpoints belong to it.
type Thread struct {
	w *Worker
	// eps is Worker.eps, or nothing where every call must take the lock: the
	// bounds check of the fast paths then fails and leads to the slow half.
	eps    []epSlot
	lanes  []lane // by index; 0 is none and refuses everything
	locked bool   // ThreadMulti
}

// lock and unlock guard the worker with ThreadMulti, else they do nothing.
func (t *Thread) lock() {
	if t.locked {
		t.w.lockShared()
	}
}

func (t *Thread) unlock() {
	if t.locked {
		t.w.unlockShared()
	}
}

// leaveLock and enterLock bracket a callback of the program: with ThreadMulti it
// runs outside of the worker's lock, so that others may post meanwhile. They may
// not progress: the caller has the baton. What was looked up in slab, sources and
// lanes before may have moved after.
func (w *Worker) leaveLock() {
	if w.am.multi || w.closed.Load() {
		w.unlockShared()
	}
}

func (w *Worker) enterLock() {
	if w.am.multi || w.closed.Load() {
		w.lockPass()
	}
}

// How long a pass of progress waits for posts to go first: in looks, and then, where
// none of them has had the lock, in offers of the processor to the goroutine that waits for it.
const (
	giveWayLooks  = 256
	giveWayYields = 64
)

// lockShared takes the worker's lock for a post or a look. Whoever progresses in
// a loop holds it nearly all the time; so posts say that they wait, and passes
// give way.
func (w *Worker) lockShared() {
	if !w.mu.TryLock() {
		w.lockSlow()
	}
}

//go:noinline
func (w *Worker) lockSlow() {
	w.want.Add(1)
	w.mu.Lock()
	w.granted.Add(1)
	w.want.Add(-1)
}

// lockPass takes the worker's lock for a pass of progress.
func (w *Worker) lockPass() {
	if w.want.Load() > 0 {
		w.giveWay()
	}
	w.mu.Lock()
}

// giveWay lets posts that wait for the lock go first. A goroutine or thread that waits
// and does not run, since there are more of them than processors, finds the lock free
// only if the pass offers its processor first.
//
//go:noinline
func (w *Worker) giveWay() {
	granted := w.granted.Load()
	for k := 0; w.want.Load() > 0; k++ {
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

// unlockShared gives the lock back and wakes those whose operations ended.
func (w *Worker) unlockShared() {
	b := &w.baton
	if b.wakes == nil && !b.inPoll {
		w.mu.Unlock()
		return
	}
	w.unlockSlow()
}

//go:noinline
func (w *Worker) unlockSlow() {
	b := &w.baton
	// The sleeper runs callbacks that became due without progress.
	signal := b.inPoll && (b.rouse || len(w.calls)+len(w.am.failed) > 0)
	x := b.wakes
	b.wakes, b.lastWake = nil, &b.wakes
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
