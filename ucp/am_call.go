package ucp

import "fmt"

// errInHandler answers a wait inside a handler of the same worker, which could
// never end: what it waits for comes only after the handler has returned.
var errInHandler = fmt.Errorf("%w: a handler must not wait for its own worker", ErrInvalid)

// callAM runs handler h with w.am.m, outside of the lock. What is looked up in
// slab, sources and lanes before it may have moved after it.
//
// While it runs every wait and every progress takes its slow half, which looks
// at inside: the transport stands in the middle of a batch.
// hot: BenchmarkAMPair
func (w *Worker) callAM(h AMHandler) {
	m := &w.am.m
	w.am.inside, w.t.locked = true, true
	w.leaveLock()
	h(m)
	w.enterLock()
	w.am.inside, w.t.locked = false, w.am.multi
	if poisonAM {
		m.poison()
	}
}
