package ucp

import (
	"context"
	"fmt"
	"slices"
)

// OnFailure is called once for each endpoint that failed, also if the endpoint is
// closed before the call. failEndpoint appends the call to amState.failureCalls; making it
// does not need the endpoint any more. These make the calls:
//
//   - progress, before the callbacks of requests (runCallbacks);
//   - the end of each callback (callAM, handleUserFast, runCallbacks), for endpoints that it closed;
//   - Close and Abort outside of callbacks, and Close of the worker.

// failureCall is a pending call of OnFailure.
type failureCall struct {
	e   Endpoint
	f   func(Endpoint, error)
	err error
}

// runFailureCalls makes the pending calls of OnFailure outside of the lock, which the caller
// holds. It may be called again by progress inside such a callback.
func (w *thread) runFailureCalls() {
	for len(w.am.failureCalls) > 0 {
		c := w.am.failureCalls[0]
		w.am.failureCalls[0] = failureCall{}
		w.am.failureCalls = w.am.failureCalls[1:]
		w.inOnFailure = c.e
		w.unlockForCallback()
		c.f(c.e, c.err)
		w.relockAfterCallback()
		w.inOnFailure = Endpoint{}
	}
}

// failureCallDue reports whether OnFailure of e is pending or running. The caller holds the
// lock.
func (w *thread) failureCallDue(e Endpoint) bool {
	return w.inOnFailure == e || slices.ContainsFunc(w.am.failureCalls, func(c failureCall) bool { return c.e == e })
}

// awaitFailureCall returns after OnFailure of e, which is closed, has been called if it was
// pending. Inside a callback it returns immediately: the call follows that callback.
// With ThreadMulti the goroutine that progresses makes the call.
func (e Endpoint) awaitFailureCall() error {
	w := e.t
	e.t.lock()
	due := w.failureCallDue(e) && w.outsideCallbacks() == nil
	if due && !w.am.multi {
		w.runCallbacks()
		due = false
	}
	e.t.unlock()
	if !due {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.ctx.closeTimeout)
	defer cancel()
	err := w.waitUntil(ctx, func() bool {
		e.t.lock()
		defer e.t.unlock()
		return !w.failureCallDue(e)
	})
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("close: %w", errCallbackRuns)
	}
	return nil // or the worker is closed; its Close makes the call
}
