package ucp

import "github.com/goucx/goucx/ucs"

// TagProbe returns the tag and the length of the oldest message that a receive with tag and
// mask would match at once. The message stays in the queue. TagProbe does not progress.
func (w *Worker) TagProbe(tag, mask Tag) (Message, bool) {
	w.t.lock()
	defer w.t.unlock()
	id := w.unexpQueue.Find(uint64(tag), uint64(mask))
	if id == 0 {
		return Message{}, false
	}
	return w.messageOf(id), true
}

func (w *Worker) messageOf(id uint32) Message {
	return Message{Tag(w.unexpQueue.Tag(id)), int(w.unexpected[id].n)}
}

// MatchedMessage is a message that was removed from matching: only its Recv can receive it. A
// message that will not be received must be dropped. The methods have the
// concurrency of the Worker.
type MatchedMessage struct {
	w  *Worker
	id uint64
	Message
}

// TagMprobe removes from matching the message that TagProbe would return. The message may
// still be arriving, or only its RTS may have arrived.
func (w *Worker) TagMprobe(tag, mask Tag) (MatchedMessage, bool) {
	w.t.lock()
	defer w.t.unlock()
	id := w.unexpQueue.Match(uint64(tag), uint64(mask))
	if id == 0 {
		return MatchedMessage{}, false
	}
	i := w.slab.alloc(opMatched)
	s := &w.slab.slots[i]
	s.arg, s.flags = uint64(id), flagHasResult
	w.unexpected[id].matchedSlot = i
	return MatchedMessage{w, w.slab.id(i), w.messageOf(id)}, true
}

// Recv receives the message into p, as TagRecv does. A second Recv, and one after Drop,
// returns a request that fails with ErrStale.
func (t MatchedMessage) Recv(p []byte) RecvRequest {
	if t.w == nil {
		return RecvRequest{}
	}
	w := t.w
	w.t.lock()
	defer w.t.unlock()
	id := w.consumeMatched(t.id)
	if id == 0 {
		return RecvRequest{}
	}
	if w.closing {
		w.unexpected[id].matchedSlot = 0
		w.dropMatched(id)
		return RecvRequest{w.t.refuse(opTagRecv, Endpoint{}, ucs.Closed)}
	}
	i := w.slab.alloc(opTagRecv)
	w.slab.slots[i].flags = flagHasResult
	w.slab.bufs[i] = p
	r := RecvRequest{Request{&w.t, w.slab.id(i)}}
	w.deliverUnexpected(i, id)
	return r
}

// Drop discards the message. If its sender waits for a reply, the sender's request fails
// with ErrRejected. Drop is idempotent.
func (t MatchedMessage) Drop() {
	if t.w == nil {
		return
	}
	t.w.t.lock()
	defer t.w.t.unlock()
	if id := t.w.consumeMatched(t.id); id != 0 {
		t.w.dropMatched(id)
	}
}

// consumeMatched returns the id, in Worker.unexpected, of the message of the MatchedMessage with this id, and
// consumes the MatchedMessage. It returns 0 if the MatchedMessage was consumed before.
func (w *Worker) consumeMatched(id uint64) uint32 {
	i := w.slab.find(id)
	if i == 0 || w.slab.slots[i].op != opMatched {
		return 0
	}
	n := uint32(w.slab.slots[i].arg)
	w.slab.release(i)
	w.unexpected[n].matchedSlot = 0
	return n
}

// dropMatched drops message id, which was removed from matching.
func (w *Worker) dropMatched(id uint32) {
	u := w.unexpected[id]
	switch u.kind {
	case unexpPartial:
		rx := w.rxConns[u.rx]
		w.freeBudgeted(rx.chunk)
		rx.into = reasmDiscard
	case unexpSync, unexpRTS:
		rx := w.rxConns[u.rx]
		rx.pendingReplies--
		w.freeBudgeted(u.chunk)
		w.reject(rx, u.id, ucs.Rejected, "it was taken and dropped")
	default:
		w.freeBudgeted(u.chunk)
	}
	w.freeUnexpected(id)
}
