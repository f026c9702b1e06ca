package ucp

// Hold takes the worker's lock, which nobody needs with ThreadSingle.
func (w *Worker) Hold() (release func()) {
	w.mu.Lock()
	return w.mu.Unlock
}
