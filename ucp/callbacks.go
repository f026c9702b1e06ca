package ucp

import (
	"slices"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
)

// Completion is what a callback receives about the completed operation.
type Completion struct {
	// Cookie is the value that was passed to Notify.
	Cookie uint64
	// Message is set for receives.
	Message
	Err error
}

// NotifyFunc is a callback. The rules of AMHandler apply to it. Use one function
// and tell operations apart by the cookie: a closure for each operation costs more
// than the operation.
type NotifyFunc func(c Completion)

// listener holds the callback and the waiters of an operation.
type listener struct {
	f       NotifyFunc
	cookie  uint64
	waiters *waitNode // goroutines that wait
}

// listener returns the listener of slot i.
func (b *slab) listener(i uint32) *listener {
	if int(i) >= len(b.listeners) {
		b.listeners = append(b.listeners, make([]listener, len(b.Slots)-len(b.listeners))...)
	}
	return &b.listeners[i]
}

// dueCallback is a callback that is due.
type dueCallback struct {
	f NotifyFunc
	c Completion
}

// callbacks are the pending callbacks of a worker.
type callbacks struct {
	due []dueCallback // callbacks of requests
	// failures holds the calls of OnFailure. They also run after each callback of the
	// program.
	failures  []failureCall
	onFailure Endpoint // endpoint whose OnFailure is running
	running   bool
}

// pending reports whether callbacks are due.
func (c *callbacks) pending() bool { return len(c.due)+len(c.failures) > 0 }

// Notify registers f to be called once, from progress, when the operation completes. It
// returns false if the operation has completed already: f is not called, and a result can
// still be read. Otherwise f receives the result and the request is consumed. A second
// Notify replaces the first.
func (r Request) Notify(f NotifyFunc, cookie uint64) bool {
	if r.id == 0 || r.id&refusedBit != 0 || f == nil {
		return false
	}
	r.t.lock()
	defer r.t.unlock()
	w := r.t
	i := w.slab.Find(r.id)
	if i == 0 || w.slab.Slots[i].State != request.StateLive {
		return false
	}
	w.slab.Slots[i].Flags |= request.FlagNotify | request.FlagExtra
	n := w.slab.listener(i)
	n.f, n.cookie = f, cookie
	w.polling.checkSoon()
	return true
}

// notify passes the completion of the operation in slot i to its callback and its waiters.
// The callback, or else the first waiter that consumes results, receives the result.
// Further ones receive ErrStale. A waiter for several operations reads the outcome itself.
func (w *thread) notify(i uint32) {
	s, n := &w.slab.Slots[i], w.slab.listener(i)
	result := request.As[recvOp](s)
	c := Completion{Cookie: n.cookie, Message: Message{Tag(result.tag), int(result.length)}}
	if s.Status != ucs.OK {
		c.Err = w.slotErr(i)
	}
	f, node := n.f, n.waiters
	n.f, n.waiters = nil, nil
	consumed, errorRead := f != nil, false
	for node != nil {
		x, next := node.x, node.next
		node.x, node.next = nil, nil
		switch {
		case x.id == 0: // one of several operations; the waiter reads the outcome itself
			x.anyEnded = true
		case !x.consume:
			errorRead = true
			x.err = c.Err
		case consumed || s.Flags&request.FlagHasResult == 0:
			x.err = ErrStale
		default:
			consumed = true
			x.m, x.err = c.Message, c.Err
		}
		w.owner.resolveWaiter(x, causeDone)
		node = next
	}
	if f != nil {
		if s.Op != request.TagRecv {
			c.Message = Message{}
		}
		w.callbacks.due = append(w.callbacks.due, dueCallback{f, c})
		w.polling.moreWork = true
	}
	// The slot is released, or stays if its result or error may still be read.
	s.Flags &^= request.FlagNotify
	switch {
	case !consumed && s.Flags&request.FlagHasResult != 0:
		s.State = request.StateDone
	case consumed || s.Status == ucs.OK || s.Flags&request.FlagReported != 0:
		w.slab.release(i)
	case errorRead:
		s.State = request.StateRead
		w.slab.AddUnclaimed(i)
	default:
		s.State = request.StateDone
		if s.EP == 0 {
			w.slab.AddUnclaimed(i)
		}
	}
}

// runCallbacks runs the callbacks that are due, with the lock released during each. The caller
// holds the lock. Callbacks that become due in the meantime run too. A nested Progress
// leaves them to the outer one.
func (w *thread) runCallbacks() {
	if w.callbacks.running {
		return
	}
	w.callbacks.running = true
	w.runFailureCalls()
	for k := 0; k < len(w.callbacks.due); k++ {
		c := w.callbacks.due[k]
		w.callbacks.due[k] = dueCallback{}
		w.unlockForCallback()
		c.f(c.c)
		w.relockAfterCallback()
		if len(w.callbacks.failures) > 0 {
			w.runFailureCalls()
		}
	}
	w.callbacks.due = w.callbacks.due[:0]
	w.callbacks.running = false
	w.polling.moreWork = len(w.polling.active) > 1
}

// OnFailure is called once for each endpoint that failed, also if the endpoint is
// closed before the call. failEndpoint appends the call to callbacks.failures; making it
// does not need the endpoint any more. These make the calls:
//
//   - progress, before the callbacks of requests (runCallbacks);
//   - the end of each callback (callAM, endHandler, runCallbacks), for endpoints that it closed;
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
	for len(w.callbacks.failures) > 0 {
		c := w.callbacks.failures[0]
		w.callbacks.failures[0] = failureCall{}
		w.callbacks.failures = w.callbacks.failures[1:]
		w.callbacks.onFailure = c.e
		w.unlockForCallback()
		c.f(c.e, c.err)
		w.relockAfterCallback()
		w.callbacks.onFailure = Endpoint{}
	}
}

// failureDue reports whether OnFailure of e is pending or running. The caller holds the
// lock.
func (cb *callbacks) failureDue(e Endpoint) bool {
	return cb.onFailure == e || slices.ContainsFunc(cb.failures, func(c failureCall) bool { return c.e == e })
}
