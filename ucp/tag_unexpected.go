package ucp

import "github.com/goucx/goucx/ucs"

// unexpected is a message that no receive has matched.
type unexpected struct {
	chunk       chunk  // the payload
	n           uint64 // length of the message
	id          uint64 // the sender's id if the sender waits for a reply; with unexpLost the status
	rx          uint32 // index of the rx connection if a reply is due or data is still to come
	matchedSlot uint32 // slot of the MatchedMessage that has it; 0: it can be matched by tag
	kind        unexpKind
}

// unexpKind says which part of an unexpected message has arrived.
type unexpKind uint8

const (
	unexpFree    unexpKind = iota // no message
	unexpWhole                    // all of it
	unexpSync                     // all of it, and its sender waits for the match
	unexpPartial                  // a part of it; from assembles it
	unexpRTS                      // only its RTS
	unexpLost                     // nothing, and nothing will arrive: id is the status
)

// queueUnexpected queues a message that no receive matches.
//
//go:noinline
func (w *Worker) queueUnexpected(tag uint64, data []byte) {
	w.queueUnexpectedAs(tag, data, unexpected{kind: unexpWhole})
}

func (w *Worker) queueUnexpectedAs(tag uint64, data []byte, u unexpected) {
	u.n = uint64(len(data))
	u.chunk = w.allocBudgeted(len(data)) // also for an empty message: it occupies as much memory
	copy(w.pool.bytes(u.chunk), data)
	w.addUnexpected(tag, u)
}

func (w *Worker) addUnexpected(tag uint64, u unexpected) uint32 {
	w.count.Inc(cntUnexpected)
	id := w.unexpQueue.Add(tag)
	for int(id) >= len(w.unexpected) {
		w.unexpected = append(w.unexpected, unexpected{})
	}
	w.unexpected[id] = u
	return id
}

// handleSync receives a whole message whose sender waits for the match.
//
//hot:bench BenchmarkTagSync
func (wi *workerIface) handleSync(rx *rxConn, tag uint64, data []byte) {
	w := wi.w
	if len(data) < syncHeaderLen || rx.peer == 0 {
		wi.protocolError(rx)
		return
	}
	id := payloadUint64(data, 0)
	data = data[syncHeaderLen:]
	if i := w.posted.Match(tag); i != 0 {
		w.deliver(i, tag, data)
		w.reply(rx, control{id: amSyncAck, hdr: id})
		return
	}
	w.queueSync(rx, tag, id, data)
}

// queueSync queues a synchronous message that no receive matches. It refuses the message if
// the worker is closing.
//
//go:noinline
func (w *Worker) queueSync(rx *rxConn, tag, id uint64, data []byte) {
	if w.rejecting {
		w.reject(rx, id, ucs.Rejected, "its worker closes")
		return
	}
	if w.budget.exhausted {
		w.requestRndvOnly(rx)
	}
	rx.pendingReplies++
	w.queueUnexpectedAs(tag, data, unexpected{kind: unexpSync, id: id, rx: rx.index})
}

// matchUnexpected matches the receive in slot i with a queued message. The message may have
// arrived, may be arriving, or only its RTS may have arrived.
//
//go:noinline
func (w *Worker) matchUnexpected(i uint32, tag, mask uint64) bool {
	id := w.unexpQueue.Match(tag, mask)
	if id == 0 {
		return false
	}
	w.deliverUnexpected(i, id)
	return true
}

// deliverUnexpected delivers the unexpected message id, which was removed from matching, to the
// receive in slot i.
func (w *Worker) deliverUnexpected(i, id uint32) {
	u, tag := w.unexpected[id], w.unexpQueue.Tag(id)
	w.freeUnexpected(id)
	switch u.kind {
	case unexpPartial:
		w.matchPartial(i, w.rxConns[u.rx])
	case unexpRTS:
		rx := w.rxConns[u.rx]
		rx.pendingReplies--
		w.slab.slots[i].tag = tag
		w.requestData(rx, i, u.id, u.n)
	case unexpLost:
		s := &w.slab.slots[i]
		s.tag, s.length = tag, u.n
		w.end(i, ucs.Status(u.id))
	default:
		w.deliver(i, tag, w.pool.bytes(u.chunk)[:u.n])
		w.slab.bufs[i] = nil // the worker may sleep, so no sweep would clear it
		w.freeBudgeted(u.chunk)
		if u.kind == unexpSync {
			w.rxConns[u.rx].pendingReplies--
			w.reply(w.rxConns[u.rx], control{id: amSyncAck, hdr: u.id})
		}
	}
}

func (w *Worker) freeUnexpected(id uint32) {
	w.unexpected[id] = unexpected{}
	w.unexpQueue.Free(id)
}

// dropUnexpected drops the unexpected message id, of which no more will arrive. A message that
// was taken stays as unexpLost with st.
func (w *Worker) dropUnexpected(id uint32, st ucs.Status) {
	u := &w.unexpected[id]
	w.freeBudgeted(u.chunk)
	if u.kind == unexpRTS || u.kind == unexpSync {
		w.rxConns[u.rx].pendingReplies--
	}
	if u.matchedSlot != 0 {
		*u = unexpected{kind: unexpLost, n: u.n, id: uint64(st), matchedSlot: u.matchedSlot}
		return
	}
	w.unexpQueue.Remove(id)
	w.freeUnexpected(id)
}

// rejectUnmatched refuses the messages whose senders wait for a reply. The worker is
// closing, so no receive will match them.
func (w *Worker) rejectUnmatched() {
	w.t.lock()
	defer w.t.unlock()
	w.rejecting = true
	w.rejectRndvs()
	for id := range w.unexpected {
		if u := w.unexpected[id]; u.kind == unexpRTS || u.kind == unexpSync {
			w.dropUnexpected(uint32(id), ucs.Closed)
			w.reject(w.rxConns[u.rx], u.id, ucs.Rejected, "its worker closes")
		}
	}
}
