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

// giveWay is how long a pass waits for posts to go first, in looks.
const giveWay = 256

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
	w.want.Add(-1)
}

// lockPass takes the worker's lock for a pass of progress.
func (w *Worker) lockPass() {
	for k := 0; w.want.Load() > 0 && k < giveWay; k++ {
		cpu.Pause()
	}
	w.mu.Lock()
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
	signal := b.inPoll && (b.rouse || len(w.calls)+len(w.failed) > 0)
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
