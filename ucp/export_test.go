package ucp

// Hold takes the worker's lock, which nobody needs with ThreadSingle.
func (w *Worker) Hold() (release func()) {
	w.t.mu.Lock()
	return w.t.mu.Unlock
}

// LiveConnections is how many connections of the worker hold something.
func (w *Worker) LiveConnections() (n int) {
	w.t.lock()
	defer w.t.unlock()
	for _, f := range w.t.eviction.caches {
		n += f.Active()
	}
	return n
}
