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

// NotifyFunc is a callback, under the rules of AMHandler. Make one and let the cookie tell operations apart:
// a closure per operation costs more than the operation.
type NotifyFunc func(c Completion)

// note is who waits for an operation's end.
type note struct {
	f      NotifyFunc
	cookie uint64
	wait   *waiter // goroutines, through waiter.chain
}

// note gives the note of slot i.
func (b *slab) note(i uint32) *note {
	if int(i) >= len(b.notes) {
		b.notes = append(b.notes, make([]note, len(b.slots)-len(b.notes))...)
	}
	return &b.notes[i]
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
	n := w.slab.note(i)
	n.f, n.cookie = f, cookie
	return true
}

// notify tells the end of the operation in slot i to those who asked for it: the
// first who consumes results gets the result, further ones ErrStale.
func (w *Worker) notify(i uint32) {
	s, n := &w.slab.slots[i], w.slab.note(i)
	c := Completion{Cookie: n.cookie, Message: Message{Tag(s.tag), int(s.n)}}
	if s.status != ucs.OK {
		c.Err = w.slotErr(i)
	}
	f, x := n.f, n.wait
	n.f, n.wait = nil, nil
	consumed, told := f != nil, false
	for x != nil {
		next := x.chain
		switch {
		case !x.take:
			told = true
			x.err = c.Err
		case consumed || s.flags&flagKept == 0:
			x.err = ErrStale
		default:
			consumed = true
			x.m, x.err = c.Message, c.Err
		}
		w.decide(x, fateEnded)
		x = next
	}
	if f != nil {
		if s.op != opTagRecv {
			c.Message = Message{}
		}
		w.calls = append(w.calls, call{f, c})
		w.odd = true
	}
	w.settleSlot(i, consumed, told)
}

// settleSlot releases slot i, whose operation has ended, or keeps it for who may
// still look.
func (w *Worker) settleSlot(i uint32, consumed, told bool) {
	s := &w.slab.slots[i]
	s.flags &^= flagNotify
	switch {
	case !consumed && s.flags&flagKept != 0:
		s.state = slotDone
	case consumed || s.status == ucs.OK || s.flags&flagReported != 0:
		w.slab.release(i)
	case told:
		s.state = slotRead
		w.slab.orphan(i)
	default:
		s.state = slotDone
		if s.ep == 0 {
			w.slab.orphan(i)
		}
	}
}

// runCalls runs the callbacks that are due, outside of the lock, which the caller
// has. Callbacks that become due meanwhile run too; a nested Progress leaves them
// to the outer.
func (w *Worker) runCalls() {
	if w.calling {
		return
	}
	w.calling = true
	w.runFailed()
	for k := 0; k < len(w.calls); k++ {
		c := w.calls[k]
		w.calls[k] = call{}
		w.leaveLock()
		c.f(c.c)
		w.enterLock()
		if len(w.am.failed) > 0 {
			w.runFailed()
		}
	}
	w.calls = w.calls[:0]
	w.calling = false
	w.settle()
}
