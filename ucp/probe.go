package ucp

import "github.com/goucx/goucx/ucs"

// TagProbe looks for the oldest message that a receive with tag and mask would
// get at once, and gives its tag and length. The message stays. It does not
// progress.
func (w *Worker) TagProbe(tag, mask Tag) (Message, bool) {
	w.t.lock()
	defer w.t.unlock()
	id := w.arrived.Find(uint64(tag), uint64(mask))
	if id == 0 {
		return Message{}, false
	}
	return w.messageOf(id), true
}

func (w *Worker) messageOf(id uint32) Message {
	return Message{Tag(w.arrived.Tag(id)), int(w.un[id].n)}
}

// Taken is a message that was taken out of matching: only its Recv reads it. One
// that nobody will read must be dropped. Its methods have the concurrency of the
// Worker.
type Taken struct {
	w  *Worker
	id uint64
	Message
}

// TagTake takes the message that TagProbe would give. A message that still comes
// in, or was only announced, may be taken too.
func (w *Worker) TagTake(tag, mask Tag) (Taken, bool) {
	w.t.lock()
	defer w.t.unlock()
	id := w.arrived.Match(uint64(tag), uint64(mask))
	if id == 0 {
		return Taken{}, false
	}
	i := w.slab.take(opTaken)
	s := &w.slab.slots[i]
	s.arg, s.flags = uint64(id), flagKept
	w.un[id].taken = i
	return Taken{w, w.slab.id(i), w.messageOf(id)}, true
}

// Recv receives the message into p as TagRecv does. The second Recv, and one
// after Drop, give a request that answers ErrStale.
func (t Taken) Recv(p []byte) RecvRequest {
	if t.w == nil {
		return RecvRequest{}
	}
	w := t.w
	w.t.lock()
	defer w.t.unlock()
	id := w.untake(t.id)
	if id == 0 {
		return RecvRequest{}
	}
	if w.closing {
		w.un[id].taken = 0
		w.forgetTaken(id)
		return RecvRequest{w.t.refuse(opTagRecv, Endpoint{}, ucs.Closed)}
	}
	i := w.slab.take(opTagRecv)
	w.slab.slots[i].flags = flagKept
	w.slab.bufs[i] = p
	r := RecvRequest{Request{&w.t, w.slab.id(i)}}
	w.give(i, id)
	return r
}

// Drop says that nobody will read the message. Where its sender waits for an
// answer his request ends with ErrRejected. Idempotent.
func (t Taken) Drop() {
	if t.w == nil {
		return
	}
	t.w.t.lock()
	defer t.w.t.unlock()
	if id := t.w.untake(t.id); id != 0 {
		t.w.forgetTaken(id)
	}
}

// untake gives the number of the message that the Taken with this id has, and
// ends the Taken; 0 where it ended before.
func (w *Worker) untake(id uint64) uint32 {
	i := w.slab.find(id)
	if i == 0 || w.slab.slots[i].op != opTaken {
		return 0
	}
	n := uint32(w.slab.slots[i].arg)
	w.slab.release(i)
	w.un[n].taken = 0
	return n
}

// forgetTaken drops message id, which is not matched by tag any more.
func (w *Worker) forgetTaken(id uint32) {
	u := w.un[id]
	switch u.kind {
	case unOpen:
		s := w.sources[u.from]
		w.unhold(s.chunk)
		s.into = intoVoid
	case unSync, unRTS:
		s := w.sources[u.from]
		s.waiting--
		w.unhold(u.chunk)
		w.refuse(s, u.id, ucs.Rejected, "it was taken and dropped")
	default:
		w.unhold(u.chunk)
	}
	w.freeArrived(id)
}
