package ucp

import (
	"github.com/goucx/goucx/ucp/internal/pool"
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucp/tagmatch"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/stats"
)

// matching matches messages with receives.
type matching struct {
	posted     tagmatch.Posted
	unexpQueue tagmatch.Unexpected
	unexpected []unexpected // unexpected messages, by their id in unexpQueue
	budget     budget
	rejecting  bool       // unmatched messages are refused, because the worker is closing
	lacking    ucs.Status // with which receives are refused, because the context has no FeatureTag
}

// recvOp is the slot of a receive. Its tag and length are the result. A fetch that completes has
// its value in the place of the tag.
type recvOp struct {
	request.Header
	recv     recvState
	rx       uint32 // index of the rx connection, from the request of the data on
	tag      uint64 // the sender's
	senderID uint64 // from the request of the data on
	received uint64 // bytes
	length   uint64 // of the message
}

// recvState is how far a receive is that gets its data by rendezvous.
type recvState uint32

const (
	recvPosted    recvState = iota // not matched, or its message arrives without a request
	recvRequested                  // it has requested the data
	recvAwaitsKey                  // it has requested the key of the sender's memory, or the data
	recvReading                    // the sender's memory is read: only the end of the read completes it
	recvCanceled                   // as recvReading, and the sender has canceled the message
	recvRevoked                    // as recvReading, and the program has canceled the receive
)

// requested reports whether the receive waits for the sender's next message.
func (r *recvOp) requested() bool { return r.recv == recvRequested || r.recv == recvAwaitsKey }

var recvOperation = operation{cancel: (*thread).cancelRecv}

// matchedOp is the slot of a MatchedMessage.
type matchedOp struct {
	request.Header
	_, _    uint32
	message uint32 // id in Worker.unexpected
	_       [28]byte
}

// deliver completes the receive in slot i with data.
//
//hot:bench BenchmarkTagPair
func (w *thread) deliver(i uint32, tag uint64, data []byte) {
	s := request.As[recvOp](&w.slab.Slots[i])
	p := w.slab.Bufs[i]
	s.tag, s.length = tag, uint64(len(data))
	if copy(p, data) < len(data) {
		w.deliverRest(i, data)
		return
	}
	if s.Flags == request.FlagHasResult {
		s.State = request.StateDone
		return
	}
	w.endSlow(i, ucs.OK)
}

// deliverRest is the part of deliver for a buffer in pieces, or one that is too short.
//
//go:noinline
func (w *thread) deliverRest(i uint32, data []byte) {
	st := ucs.OK
	if w.slab.inPieces(i) {
		w.slab.store(i, data, 0)
	}
	if w.slab.room(i) < uint64(len(data)) {
		st = ucs.Truncated
	}
	w.endSlow(i, st)
}

// unexpected is a message that no receive has matched.
type unexpected struct {
	chunk       pool.Chunk // the payload
	n           uint64     // length of the message
	id          uint64     // the sender's id if the sender waits for a reply; with unexpLost the status
	rx          uint32     // index of the rx connection if a reply is due or data is still to come
	matchedSlot uint32     // slot of the MatchedMessage that has it; 0: it can be matched by tag
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
func (w *thread) queueUnexpected(tag uint64, data []byte) {
	if w.ctx.features&FeatureTag == 0 {
		w.count.Inc(cntUnhandled)
		return
	}
	w.queueUnexpectedAs(tag, data, unexpected{kind: unexpWhole})
}

func (w *thread) queueUnexpectedAs(tag uint64, data []byte, u unexpected) {
	u.n = uint64(len(data))
	u.chunk = w.allocBudgeted(len(data)) // also for an empty message: it occupies as much memory
	copy(w.pool.Bytes(u.chunk), data)
	w.matching.add(w.count, tag, u)
}

func (m *matching) add(count *stats.Set, tag uint64, u unexpected) uint32 {
	count.Inc(cntUnexpected)
	id := m.unexpQueue.Add(tag)
	for int(id) >= len(m.unexpected) {
		m.unexpected = append(m.unexpected, unexpected{})
	}
	m.unexpected[id] = u
	return id
}

// handleSync receives a whole message whose sender waits for the match.
//
//hot:bench BenchmarkTagSync
func (wi *workerIface) handleSync(rx *rxConn, tag uint64, data []byte) {
	w := wi.t
	if len(data) < wire.SyncHeaderLen || rx.peer == 0 {
		wi.protocolError(rx)
		return
	}
	id := wire.Uint64(data, 0)
	data = data[wire.SyncHeaderLen:]
	if i := w.matching.posted.Match(tag); i != 0 {
		w.deliver(i, tag, data)
		rx.reply(control{id: wire.SyncAck, hdr: id})
		return
	}
	rx.queueSync(tag, id, data)
}

// queueSync queues a synchronous message that no receive matches. It refuses the message if
// the worker is closing.
//
//go:noinline
func (rx *rxConn) queueSync(tag, id uint64, data []byte) {
	w := rx.w
	if why := w.rejectsTags(); why != "" {
		rx.reject(id, ucs.Rejected, why)
		return
	}
	if w.matching.budget.exhausted {
		rx.requestRndvOnly()
	}
	rx.pendingReplies++
	w.queueUnexpectedAs(tag, data, unexpected{kind: unexpSync, id: id, rx: rx.index})
}

// rejectsTags returns why the worker rejects messages that no receive matches; "": it does not.
func (w *thread) rejectsTags() string {
	switch {
	case w.matching.rejecting:
		return "its worker closes"
	case w.ctx.features&FeatureTag == 0:
		return "its context was opened without FeatureTag"
	default:
		return ""
	}
}

// matchUnexpected matches the receive in slot i with a queued message. The message may have
// arrived, may be arriving, or only its RTS may have arrived.
//
//go:noinline
func (w *thread) matchUnexpected(i uint32, tag, mask uint64) bool {
	id := w.matching.unexpQueue.Match(tag, mask)
	if id == 0 {
		return false
	}
	w.deliverUnexpected(i, id)
	return true
}

// deliverUnexpected delivers the unexpected message id, which was removed from matching, to the
// receive in slot i.
func (w *thread) deliverUnexpected(i, id uint32) {
	u, tag := w.matching.unexpected[id], w.matching.unexpQueue.Tag(id)
	w.matching.freeUnexpected(id)
	switch u.kind {
	case unexpPartial:
		// The rest of the message goes directly to the receive.
		rx := w.rxConns[u.rx]
		w.slab.store(i, w.pool.Bytes(rx.chunk)[:rx.got], 0)
		w.freeBudgeted(rx.chunk)
		rx.reassembleInto(i)
	case unexpRTS:
		rx := w.rxConns[u.rx]
		rx.pendingReplies--
		request.As[recvOp](&w.slab.Slots[i]).tag = tag
		rx.requestData(i, u.id, u.n)
	case unexpLost:
		s := request.As[recvOp](&w.slab.Slots[i])
		s.tag, s.length = tag, u.n
		w.end(i, ucs.Status(u.id))
	default:
		w.deliver(i, tag, w.pool.Bytes(u.chunk)[:u.n])
		w.slab.Bufs[i] = nil // the worker may sleep, so no sweep would clear it
		w.freeBudgeted(u.chunk)
		if u.kind == unexpSync {
			w.rxConns[u.rx].pendingReplies--
			w.rxConns[u.rx].reply(control{id: wire.SyncAck, hdr: u.id})
		}
	}
}

func (m *matching) freeUnexpected(id uint32) {
	m.unexpected[id] = unexpected{}
	m.unexpQueue.Free(id)
}

// dropUnexpected drops the unexpected message id, of which no more will arrive. A message that
// was taken stays as unexpLost with st and reason; a nil reason is the error of st.
func (w *thread) dropUnexpected(id uint32, st ucs.Status, reason error) {
	u := &w.matching.unexpected[id]
	w.freeBudgeted(u.chunk)
	if u.kind == unexpRTS || u.kind == unexpSync {
		w.rxConns[u.rx].pendingReplies--
	}
	if u.matchedSlot != 0 {
		if reason != nil {
			w.slab.saveErr(u.matchedSlot, &OpError{Op: request.TagRecv.String(), Err: reason})
		}
		*u = unexpected{kind: unexpLost, n: u.n, id: uint64(st), matchedSlot: u.matchedSlot}
		return
	}
	w.matching.unexpQueue.Remove(id)
	w.matching.freeUnexpected(id)
}

// rejectUnmatched refuses the messages whose senders wait for a reply. The worker is
// closing, so no receive will match them.
func (w *thread) rejectUnmatched() {
	w.lock()
	defer w.unlock()
	w.matching.rejecting = true
	for w.am.retainer.rndvs != nil {
		r := w.am.retainer.rndvs
		rx, id := r.storage.rx, r.storage.id
		w.am.retainer.removeRndv(r)
		r.err, r.status = ErrClosed, ucs.Closed
		rx.reject(id, ucs.Rejected, "its worker closes")
	}
	for len(w.am.prefetch.queued) > 0 {
		a := w.am.prefetch.queued[0]
		a.rx.dropPrefetches(a.id, false)
		a.rx.reject(a.id, ucs.Rejected, "its worker closes")
	}
	for id := range w.matching.unexpected {
		if u := w.matching.unexpected[id]; u.kind == unexpRTS || u.kind == unexpSync {
			w.dropUnexpected(uint32(id), ucs.Closed, nil)
			w.rxConns[u.rx].reject(u.id, ucs.Rejected, "its worker closes")
		}
	}
}

// TagProbe returns the tag and the length of the oldest message that a receive with tag and
// mask would match at once. The message stays in the queue. TagProbe does not progress.
func (w *Worker) TagProbe(tag, mask Tag) (Message, bool) {
	w.t.lock()
	defer w.t.unlock()
	id := w.t.matching.unexpQueue.Find(uint64(tag), uint64(mask))
	if id == 0 {
		return Message{}, false
	}
	return w.t.matching.messageOf(id), true
}

func (m *matching) messageOf(id uint32) Message {
	return Message{Tag(m.unexpQueue.Tag(id)), int(m.unexpected[id].n)}
}

// MatchedMessage is a message that was removed from matching: only its Recv can receive it. A
// message that will not be received must be dropped. The methods have the
// concurrency of the Worker.
type MatchedMessage struct {
	w  *thread
	id uint64
	Message
}

// TagMprobe removes from matching the message that TagProbe would return. The message may
// still be arriving, or only its RTS may have arrived.
func (w *Worker) TagMprobe(tag, mask Tag) (MatchedMessage, bool) {
	w.t.lock()
	defer w.t.unlock()
	id := w.t.matching.unexpQueue.Match(uint64(tag), uint64(mask))
	if id == 0 {
		return MatchedMessage{}, false
	}
	i := w.t.slab.Alloc(request.Matched)
	s := request.As[matchedOp](&w.t.slab.Slots[i])
	s.message, s.Flags = id, request.FlagHasResult
	w.t.matching.unexpected[id].matchedSlot = i
	return MatchedMessage{&w.t, w.t.slab.ID(i), w.t.matching.messageOf(id)}, true
}

// Recv receives the message into p, as TagRecv does. A second Recv, and one after Drop,
// returns a request that fails with ErrStale.
func (t MatchedMessage) Recv(p []byte) RecvRequest { return t.recv(p, vec{}) }

// RecvV is Recv into the pieces ps, as TagRecvV receives. Too many pieces are ErrInvalid, and
// the message can still be received.
func (t MatchedMessage) RecvV(ps [][]byte) RecvRequest {
	v, st := newVec(ps)
	if t.w == nil || st == ucs.OK {
		return t.recv(nil, v)
	}
	t.w.lock()
	defer t.w.unlock()
	return RecvRequest{t.w.refuse(request.TagRecv, Endpoint{}, st)}
}

func (t MatchedMessage) recv(p []byte, v vec) RecvRequest {
	if t.w == nil {
		return RecvRequest{}
	}
	w := t.w
	w.lock()
	defer w.unlock()
	lost := w.slab.errs[uint32(t.id)]
	id := w.consumeMatched(t.id)
	if id == 0 {
		return RecvRequest{}
	}
	if w.life.closing() {
		w.matching.unexpected[id].matchedSlot = 0
		w.dropMatched(id)
		return RecvRequest{w.refuse(request.TagRecv, Endpoint{}, ucs.Closed)}
	}
	i := w.slab.Alloc(request.TagRecv)
	w.slab.Slots[i].Flags = request.FlagHasResult
	w.slab.Bufs[i] = p
	if lost != nil {
		w.slab.saveErr(i, lost)
	}
	if v.pieces != nil {
		w.slab.vecs[i] = v
		w.slab.Slots[i].Flags |= request.FlagExtra
	}
	r := RecvRequest{Request{w, w.slab.ID(i)}}
	w.deliverUnexpected(i, id)
	return r
}

// Drop discards the message. If its sender waits for a reply, the sender's request fails
// with ErrRejected. Drop is idempotent.
func (t MatchedMessage) Drop() {
	if t.w == nil {
		return
	}
	t.w.lock()
	defer t.w.unlock()
	if id := t.w.consumeMatched(t.id); id != 0 {
		t.w.dropMatched(id)
	}
}

// consumeMatched returns the id, in Worker.unexpected, of the message of the MatchedMessage with this id, and
// consumes the MatchedMessage. It returns 0 if the MatchedMessage was consumed before.
func (w *thread) consumeMatched(id uint64) uint32 {
	i := w.slab.Find(id)
	if i == 0 || w.slab.Slots[i].Op != request.Matched {
		return 0
	}
	n := request.As[matchedOp](&w.slab.Slots[i]).message
	w.slab.release(i)
	w.matching.unexpected[n].matchedSlot = 0
	return n
}

// dropMatched drops message id, which was removed from matching.
func (w *thread) dropMatched(id uint32) {
	u := w.matching.unexpected[id]
	switch u.kind {
	case unexpPartial:
		rx := w.rxConns[u.rx]
		w.freeBudgeted(rx.chunk)
		rx.into = reasmDiscard
	case unexpSync, unexpRTS:
		rx := w.rxConns[u.rx]
		rx.pendingReplies--
		w.freeBudgeted(u.chunk)
		rx.reject(u.id, ucs.Rejected, "it was taken and dropped")
	default:
		w.freeBudgeted(u.chunk)
	}
	w.matching.freeUnexpected(id)
}
