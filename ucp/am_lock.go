package ucp

// leaveLock and enterLock bracket a callback of the program: it runs outside of
// the worker's lock.
func (w *Worker) leaveLock() {}

func (w *Worker) enterLock() {}
