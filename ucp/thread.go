package ucp

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

func (t *Thread) lock() {
	if t.locked {
		t.w.mu.Lock()
	}
}

func (t *Thread) unlock() {
	if t.locked {
		t.w.mu.Unlock()
	}
}
