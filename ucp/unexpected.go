package ucp

import "github.com/goucx/goucx/ucs"

// unexpected is a message that no receive has matched.
type unexpected struct {
	chunk chunk  // the payload
	n     uint64 // length of the message
	id    uint64 // the sender's id if the sender waits for a reply; with unLost the status
	from  uint32 // index of the rx connection if a reply is due or data is still to come
	taken uint32 // slot of the MatchedMessage that has it; 0: it can be matched by tag
	kind  unKind
}

// unKind says which part of an unexpected message has arrived.
type unKind uint8

const (
	unFree  unKind = iota // no message
	unWhole               // all of it
	unSync                // all of it, and its sender waits for the match
	unOpen                // a part of it; from assembles it
	unRTS                 // only its RTS
	unLost                // nothing, and nothing will arrive: id is the status
)

// keep queues a message that no receive matches.
//
//go:noinline
func (w *Worker) keep(tag uint64, data []byte) {
	w.keepAs(tag, data, unexpected{kind: unWhole})
}

func (w *Worker) keepAs(tag uint64, data []byte, u unexpected) {
	u.n = uint64(len(data))
	u.chunk = w.allocBudgeted(len(data)) // also for an empty message: it occupies as much memory
	copy(w.pool.bytes(u.chunk), data)
	w.addArrived(tag, u)
}

func (w *Worker) addArrived(tag uint64, u unexpected) uint32 {
	w.count.Inc(cntUnexpected)
	id := w.arrived.Add(tag)
	for int(id) >= len(w.un) {
		w.un = append(w.un, unexpected{})
	}
	w.un[id] = u
	return id
}

// arriveSync receives a whole message whose sender waits for the match.
// hot: BenchmarkTagSync
func (p *port) arriveSync(s *source, tag uint64, data []byte) {
	w := p.w
	if len(data) < syncHead || s.peer == 0 {
		p.garbage(s)
		return
	}
	id := payloadUint64(data, 0)
	data = data[syncHead:]
	if i := w.posted.Match(tag); i != 0 {
		w.deliver(i, tag, data)
		w.reply(s, control{id: amSyncAck, hdr: id})
		return
	}
	w.keepSync(s, tag, id, data)
}

// keepSync queues a synchronous message that no receive matches. It refuses the message if
// the worker is closing.
//
//go:noinline
func (w *Worker) keepSync(s *source, tag, id uint64, data []byte) {
	if w.refusing {
		w.refuse(s, id, ucs.Rejected, "its worker closes")
		return
	}
	if w.budget.exhausted {
		w.requestRndvOnly(s)
	}
	s.waiting++
	w.keepAs(tag, data, unexpected{kind: unSync, id: id, from: s.index})
}

// takeArrived matches the receive in slot i with a queued message. The message may have
// arrived, may be arriving, or only its RTS may have arrived.
//
//go:noinline
func (w *Worker) takeArrived(i uint32, tag, mask uint64) bool {
	id := w.arrived.Match(tag, mask)
	if id == 0 {
		return false
	}
	w.give(i, id)
	return true
}

// give delivers the unexpected message id, which was removed from matching, to the
// receive in slot i.
func (w *Worker) give(i, id uint32) {
	u, tag := w.un[id], w.arrived.Tag(id)
	w.freeArrived(id)
	switch u.kind {
	case unOpen:
		w.matchPartial(i, w.sources[u.from])
	case unRTS:
		s := w.sources[u.from]
		s.waiting--
		w.slab.slots[i].tag = tag
		w.askFor(s, i, u.id, u.n)
	case unLost:
		s := &w.slab.slots[i]
		s.tag, s.n = tag, u.n
		w.end(i, ucs.Status(u.id))
	default:
		w.deliver(i, tag, w.pool.bytes(u.chunk)[:u.n])
		w.slab.bufs[i] = nil // the worker may sleep, so no sweep would clear it
		w.freeBudgeted(u.chunk)
		if u.kind == unSync {
			w.sources[u.from].waiting--
			w.reply(w.sources[u.from], control{id: amSyncAck, hdr: u.id})
		}
	}
}

func (w *Worker) freeArrived(id uint32) {
	w.un[id] = unexpected{}
	w.arrived.Free(id)
}

// dropArrived drops the unexpected message id, of which no more will arrive. A message that
// was taken stays as unLost with st.
func (w *Worker) dropArrived(id uint32, st ucs.Status) {
	u := &w.un[id]
	w.freeBudgeted(u.chunk)
	if u.kind == unRTS || u.kind == unSync {
		w.sources[u.from].waiting--
	}
	if u.taken != 0 {
		*u = unexpected{kind: unLost, n: u.n, id: uint64(st), taken: u.taken}
		return
	}
	w.arrived.Remove(id)
	w.freeArrived(id)
}

// refuseUnmatched refuses the messages whose senders wait for a reply. The worker is
// closing, so no receive will match them.
func (w *Worker) refuseUnmatched() {
	w.t.lock()
	defer w.t.unlock()
	w.refusing = true
	w.rejectRndvs()
	for id := range w.un {
		if u := w.un[id]; u.kind == unRTS || u.kind == unSync {
			w.dropArrived(uint32(id), ucs.Closed)
			w.refuse(w.sources[u.from], u.id, ucs.Rejected, "its worker closes")
		}
	}
}
