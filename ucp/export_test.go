package ucp

import "github.com/goucx/goucx/ucs"

// Hold takes the worker's lock, which nobody needs with ThreadSingle.
func (w *Worker) Hold() (release func()) {
	w.t.owner.mu.Lock()
	return w.t.owner.mu.Unlock
}

// HoldAll takes the locks of a worker, of what its Threads share, and of its context.
func HoldAll(w *Worker) (release func()) {
	all := []interface {
		Lock()
		Unlock()
	}{&w.t.owner.mu, w.t.publish.mu, &w.threads.mu, &w.t.ctx.mu}
	for _, l := range all {
		l.Lock()
	}
	return func() {
		for _, l := range all {
			l.Unlock()
		}
	}
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

// Held is what a worker and its context hold.
type Held struct {
	Peers, Lanes, RxConns int // of the worker
	Owned                 int // workers, Threads in use and memory of the context
}

// HeldBy counts what w and its context hold.
func HeldBy(w *Worker) (h Held) {
	w.t.lock()
	h.Peers = w.t.peers.Len()
	for i := range w.t.lanes {
		if w.t.lanes[i].ep != nil {
			h.Lanes++
		}
	}
	for _, rx := range w.t.rxConns {
		if rx != nil {
			h.RxConns++
		}
	}
	w.t.unlock()
	x := w.t.ctx
	x.mu.Lock()
	h.Owned = len(x.owned)
	x.mu.Unlock()
	return h
}

// ThreadSpin is how long a wait for a request of t, which was used, polls.
func ThreadSpin(t *Thread) ucs.Time { return t.own.t.polling.sleeper.spin }
