package ucp

import "runtime"

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
		t.w.mu.Unlock()
	}
}

// lockShared takes the worker's lock for a post or a look. Whoever progresses in
// a loop holds it nearly all the time, and sync.Mutex would hand it over only
// after a millisecond; so posts say that they wait, and passes give way.
func (w *Worker) lockShared() {
	if w.mu.TryLock() {
		return
	}
	w.want.Add(1)
	w.mu.Lock()
	w.want.Add(-1)
}

// lockPass takes the worker's lock for a pass of progress.
func (w *Worker) lockPass() {
	for k := 0; w.want.Load() > 0 && k < maxYields; k++ {
		runtime.Gosched()
	}
	w.mu.Lock()
}

// maxYields bounds how often a pass lets posts go first.
const maxYields = 64
