package ucp

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/goucx/goucx/internal/race"
)

// errInHandler is the result of a wait inside a callback of the same worker. Such a
// wait could never end, because the worker makes no progress before the callback
// returns.
var errInHandler = fmt.Errorf("%w: a handler must not wait for its own worker", ErrInvalid)

// errPanicked is the result of waits and closes after a handler did not return, in a
// thread mode where only one goroutine uses the worker.
var errPanicked = fmt.Errorf("%w: a handler of the worker panicked or ended its goroutine", ErrInvalid)

// errCallbackRuns is the result of a close while a callback runs on another goroutine.
var errCallbackRuns = fmt.Errorf("%w: a callback of the worker still runs, panicked or ended its goroutine", ErrTimeout)

// mayWait returns an error inside a handler, with ThreadMulti inside any callback. The
// caller holds the lock.
func (w *thread) mayWait() error {
	if !w.am.inHandler && !(w.am.multi && w.callbacks.running) {
		return nil
	}
	return w.outsideCallbacks()
}

// outsideCallbacks returns an error if the caller is inside a callback. With
// ThreadMulti other goroutines may call while a callback runs; the caller's stack
// distinguishes the two. The caller holds the lock.
func (w *thread) outsideCallbacks() error {
	switch {
	case !w.am.inHandler && !w.callbacks.running:
		return nil
	case inCallback():
		return errInHandler
	case w.am.multi:
		return nil
	default:
		return errPanicked
	}
}

// mayClose returns an error inside a callback, and if a callback runs on another
// goroutine for longer than CloseTimeout. A callback that panicked never returns, and
// leaves the transport in the middle of its progress pass. The caller holds the lock.
func (w *Worker) mayClose() error {
	if err := w.t.outsideCallbacks(); err != nil {
		return err
	}
	if !w.t.am.multi || w.t.owner.state == ownerNone || !w.t.am.inHandler && !w.t.callbacks.running {
		return nil
	}
	if !w.t.acquireProgress() {
		return errCallbackRuns
	}
	w.t.owner.transfer(&w.t.slab)
	return nil
}

// inCallback reports whether a callback of the worker is on the caller's stack.
func inCallback() bool {
	var pcs [64]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if strings.HasSuffix(f.Function, ".(*thread).callAM") || strings.HasSuffix(f.Function, ".(*workerIface).HandleAM") || strings.HasSuffix(f.Function, ".(*thread).runCallbacks") {
				return true
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}

// callAM runs handler h with w.am.m, outside of the lock. The slab, the rx connections
// and the lanes may be reallocated meanwhile, so pointers into them obtained before the
// call are invalid after it.
//
// While h runs, every wait and every progress takes its slow path, which checks inside:
// the transport is in the middle of a batch.
//
//hot:bench BenchmarkAMPair
func (w *thread) callAM(h AMHandler) {
	m := &w.am.m
	w.am.inHandler = true
	if !w.am.multi { // otherwise other goroutines read it
		w.locked = true
	}
	w.unlockForCallback()
	h(m)
	w.relockAfterCallback()
	if len(w.callbacks.failures) > 0 {
		w.runFailureCalls()
	}
	w.am.inHandler = false
	if !w.am.multi {
		w.locked = false
	}
	if race.Enabled {
		m.poison()
	}
}
