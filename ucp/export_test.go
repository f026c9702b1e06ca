package ucp

// Hold takes the worker's lock, which nobody needs with ThreadSingle.
func (w *Worker) Hold() (release func()) {
	w.t.owner.mu.Lock()
	return w.t.owner.mu.Unlock
}

// LiveConnections is how many connections of the worker hold something.
func (w *Worker) LiveConnections() (n int) {
	w.t.lock()
	defer w.t.unlock()
	for _, f := range w.t.polling.eviction.caches {
		n += f.Active()
	}
	return n
}
