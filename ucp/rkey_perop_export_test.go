package ucp

// ResolvesLate tells which operations table k has.
func ResolvesLate(k *RemoteKey) bool {
	_, late := k.ep.(*perOpEndpoint)
	return late
}

// PolledIfaces is how many interfaces each pass of w calls.
func PolledIfaces(w *Worker) int { return len(w.t.polling.active) }

// ContextOf is the context that w belongs to.
func ContextOf(w *Worker) *Context { return w.t.ctx }
