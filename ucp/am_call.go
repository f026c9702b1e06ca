package ucp

import (
	"fmt"
	"runtime"
	"strings"
)

// errInHandler answers a wait inside a handler of the same worker, which could
// never end: what it waits for comes only after the handler has returned.
var errInHandler = fmt.Errorf("%w: a handler must not wait for its own worker", ErrInvalid)

// mayWait refuses a wait inside a handler. With ThreadMulti others may wait
// while a handler runs, so there the caller's stack tells. The lock is held.
func (w *Worker) mayWait() error {
	if w.am.inside && !w.am.multi || w.am.multi && (w.am.inside || w.calling) && inHandler() {
		return errInHandler
	}
	return nil
}

// inHandler reports whether the caller is called by a handler.
func inHandler() bool {
	var pcs [64]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		if runsCallback(pcs[:n]) {
			return true
		}
		if n < len(pcs) {
			return false
		}
	}
}

func runsCallback(pcs []uintptr) bool {
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, ".(*Worker).callAM") || strings.HasSuffix(f.Function, ".(*Worker).runCalls") {
			return true
		}
		if !more {
			return false
		}
	}
}

// callAM runs handler h with w.am.m, outside of the lock. What is looked up in
// slab, sources and lanes before it may have moved after it.
//
// While it runs every wait and every progress takes its slow half, which looks
// at inside: the transport stands in the middle of a batch.
// hot: BenchmarkAMPair
func (w *Worker) callAM(h AMHandler) {
	m := &w.am.m
	w.am.inside = true
	if !w.am.multi { // else others read it
		w.t.locked = true
	}
	w.leaveLock()
	h(m)
	w.enterLock()
	w.am.inside = false
	if !w.am.multi {
		w.t.locked = false
	}
	if poisonAM {
		m.poison()
	}
}

// closesLater has endpoint e closed when its flush r has ended, where the caller
// is a handler, which cannot wait for it.
func (w *Worker) closesLater(r Request, e Endpoint) bool {
	w.t.lock()
	handling := w.mayWait() != nil
	w.t.unlock()
	return handling && r.Notify(w.am.shut, e.id)
}

// mayClose refuses a close inside a handler of one of the context's workers.
func (x *Context) mayClose() error {
	x.mu.Lock()
	var workers []*Worker
	for c := range x.owned {
		if w, ok := c.(*Worker); ok {
			workers = append(workers, w)
		}
	}
	x.mu.Unlock()
	for _, w := range workers {
		w.t.lock()
		err := w.mayWait()
		w.t.unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
