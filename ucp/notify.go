package ucp

import "github.com/goucx/goucx/ucs"

// Completion is what a callback learns of the operation that ended.
type Completion struct {
	// Cookie is what Notify was given.
	Cookie uint64
	// Message is set for receives.
	Message
	Err error
}

// NotifyFunc is a callback. Make one and let the cookie tell operations apart:
// a closure per operation costs more than the operation.
type NotifyFunc func(c Completion)

// note is a callback that waits for its operation's end.
type note struct {
	f      NotifyFunc
	cookie uint64
}

// call is a callback whose time has come.
type call struct {
	f NotifyFunc
	c Completion
}

// Notify has f called once from progress when the operation ends. It answers
// false where it has ended already: then f will not run, and a result is still
// to be read. Else f gets the result: the request is consumed. A second Notify
// replaces the first.
func (r Request) Notify(f NotifyFunc, cookie uint64) bool {
	if r.id == 0 || r.id&refusedBit != 0 || f == nil {
		return false
	}
	r.t.lock()
	defer r.t.unlock()
	w := r.t.w
	i := w.slab.find(r.id)
	if i == 0 || w.slab.slots[i].state != slotLive {
		return false
	}
	w.slab.slots[i].flags |= flagNotify | flagAside
	if int(i) >= len(w.slab.notes) {
		w.slab.notes = append(w.slab.notes, make([]note, len(w.slab.slots)-len(w.slab.notes))...)
	}
	w.slab.notes[i] = note{f, cookie}
	return true
}

// notify queues the callback of slot i, which has ended, and releases the slot.
func (w *Worker) notify(i uint32) {
	s := &w.slab.slots[i]
	n := w.slab.notes[i]
	c := Completion{Cookie: n.cookie}
	if s.op == opTagRecv {
		c.Message = Message{Tag(s.tag), int(s.n)}
	}
	if s.status != ucs.OK {
		c.Err = w.slotErr(i)
	}
	w.slab.release(i)
	w.calls = append(w.calls, call{n.f, c})
	w.odd = true
}

// runCalls runs the callbacks that are due, outside of the lock. Callbacks that
// become due meanwhile run too; a nested Progress leaves them to the outer.
func (w *Worker) runCalls() {
	w.t.lock()
	if w.calling {
		w.t.unlock()
		return
	}
	w.calling = true
	for k := 0; k < len(w.calls); k++ {
		c := w.calls[k]
		w.calls[k] = call{}
		w.t.unlock()
		c.f(c.c)
		w.t.lock()
	}
	w.calls = w.calls[:0]
	for k := 0; k < len(w.failed); k++ {
		e := Endpoint{&w.t, w.failed[k]}
		c := w.cold[w.endpoint(e)]
		if c == nil {
			continue // closed meanwhile
		}
		w.t.unlock()
		c.onFailure(e, c.err)
		w.t.lock()
	}
	w.failed = w.failed[:0]
	w.calling = false
	w.settle()
	w.t.unlock()
}
