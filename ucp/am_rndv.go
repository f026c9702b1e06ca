package ucp

import (
	"slices"

	"github.com/goucx/goucx/ucp/internal/pool"
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
)

// wantsEager reports whether the handler of the active message in s gets the data with
// the message. If flow control forces a rendezvous, the receiver fetches the data
// first.
func (l *lane) wantsEager(s *sendOp) bool {
	return s.wants&sendRndv == 0 && (s.length <= l.maxEager || s.wants&sendEager != 0)
}

// handleUserRTS receives the RTS of an active message.
func (wi *workerIface) handleUserRTS(rx *rxConn, head uint64, data []byte) {
	w := wi.t
	if len(data) != wire.RTSLen+wire.WordHeaderLen(head) || !wi.validWord(rx, head, len(data)) || rx.peer == 0 {
		wi.protocolError(rx)
		return
	}
	id, n := wire.ParseRTS(data)
	header := data[wire.RTSLen:]
	if n > wire.MaxMessage || head&wire.WordPrefetch != 0 && n > maxPrefetch {
		wi.protocolError(rx)
		return
	}
	h := w.am.handler(head)
	switch {
	case w.matching.rejecting:
		rx.reject(id, ucs.Rejected, "its worker closes")
	case h == nil:
		if w.am.dropUnknown(w, AMID(head)); head&wire.WordPrefetch != 0 {
			rx.discardRndv(id) // the sender does not learn it of a message in fragments either
		} else {
			rx.reject(id, ucs.Rejected, "no handler for this id")
		}
	case head&wire.WordPrefetch != 0 && rx.fetchNow(head, id, n, header):
	case head&wire.WordPrefetch != 0:
		a := queuedPrefetch{rx: rx, word: head, id: id, n: n}
		if len(header) > 0 {
			a.header = w.allocBudgeted(len(header))
			copy(w.pool.Bytes(a.header), header)
		}
		rx.pendingReplies++
		w.am.prefetch.queued = append(w.am.prefetch.queued, a)
		w.prefetchNext()
	default:
		m := &w.am.m
		m.ID, m.Len, m.Rendezvous = AMID(head), int(n), true
		m.Header, m.Data = header, nil
		m.storage = amStorage{kind: storageSender, rx: rx, id: id}
		if head&wire.WordReply != 0 {
			m.From = rx.fromEndpoint()
		}
		w.callAM(h)
		if !m.reset() {
			rx.discardRndv(id) // the handler does not keep the message
		}
	}
}

// fetchNow fetches the message that rx announced as id and runs its handler, so that it has its place among the others. It
// returns false if the message is to be requested.
func (rx *rxConn) fetchNow(word, id, n uint64, header []byte) bool {
	w := rx.w
	q := &w.am.prefetch
	if rx.iface.fetcher == nil || n < fetchMin || len(q.queued)+len(q.active) > 0 || rx.openReplyLane() == 0 {
		return false
	}
	h := len(header)
	chunk := w.allocBudgeted(h + int(n))
	b := w.pool.Bytes(chunk)[: h+int(n) : h+int(n)]
	copy(b, header)
	st, kept := rx.iface.fetcher.FetchNow(rx.id, id, n, b[h:]), false
	switch st {
	case ucs.OK:
		rx.reply(control{id: wire.ReadDone, hdr: id})
		kept = w.dispatch(rx, word, b, amStorage{kind: storagePool, chunk: chunk})
	case ucs.PeerFailed: // what the peer had sent later is not delivered: this message would be missing before it
		rx.ignore()
	case ucs.Unsupported, ucs.Canceled: // after Canceled a Cancel arrives
	default:
		rx.reject(id, ucs.Rejected, "copy from the sender's memory: "+st.Err().Error())
	}
	if !kept {
		w.freeBudgeted(chunk)
	}
	return st != ucs.Unsupported
}

// discardRndv completes an announced message at its sender without transferring the data
// and without an error. It sends an RTR for 0 bytes.
func (rx *rxConn) discardRndv(id uint64) {
	rx.reply(control{id: wire.RTR, hdr: id, n: wire.RTRLen})
}

// A peer under flow control (flow_control.go) sends all active messages by rendezvous, also
// those that it would otherwise send eagerly. This is not visible to the handlers: the
// worker fetches the data of such a message first and then runs its handler. Messages
// are fetched in the order of arrival over all senders. At most prefetchWindow bytes are
// fetched at a time.

// prefetchWindow is the maximum number of bytes that are fetched at a time. One message
// may exceed it if it is the only one.
const prefetchWindow = 256 << 10

// maxPrefetch is the maximum length of a message that is fetched for its handler. It
// bounds the memory that a length announced by a peer can allocate. The sender sends
// longer messages in fragments, also under flow control.
const maxPrefetch = maxPrealloc

// prefetchQueue holds the messages that are fetched for their handlers.
type prefetchQueue struct {
	queued      []queuedPrefetch
	active      []activePrefetch
	activeBytes uint64 // of running
	busy        bool   // prefetchNext runs
}

// queuedPrefetch is a message whose data has not been requested.
type queuedPrefetch struct {
	rx     *rxConn
	word   uint64
	id, n  uint64
	header pool.Chunk
}

// activePrefetch is a message whose data has been requested. slot is a receive without a
// user request.
type activePrefetch struct {
	slot  uint32
	rx    *rxConn
	word  uint64
	chunk pool.Chunk // header and data
	n     uint64
}

// prefetchNext requests queued messages up to the bound.
func (w *thread) prefetchNext() {
	q := &w.am.prefetch
	if q.busy {
		return // an empty message completed inside the loop
	}
	q.busy = true
	for len(q.queued) > 0 && (len(q.active) == 0 || q.activeBytes+q.queued[0].n <= prefetchWindow) {
		a := q.queued[0]
		q.queued = slices.Delete(q.queued, 0, 1)
		a.rx.pendingReplies--
		h := uint64(wire.WordHeaderLen(a.word))
		f := activePrefetch{rx: a.rx, word: a.word, n: a.n, chunk: w.allocBudgeted(int(a.n + h))}
		b := w.pool.Bytes(f.chunk)[: h+a.n : h+a.n]
		if h > 0 {
			copy(b, w.pool.Bytes(a.header)[:h])
			w.freeBudgeted(a.header)
		}
		f.slot = w.slab.Alloc(request.AMFetch)
		w.slab.Slots[f.slot].Flags = request.FlagReported
		w.slab.Bufs[f.slot] = b[h:]
		q.active = append(q.active, f)
		q.activeBytes += a.n
		a.rx.requestData(f.slot, a.id, a.n)
	}
	q.busy = false
}

var prefetchOperation = operation{complete: (*thread).prefetchDone, cancel: (*thread).cancelRecv}

// prefetchDone runs the handler of the message whose fetch in slot i completed with st,
// and releases the slot.
func (w *thread) prefetchDone(i uint32, st ucs.Status) bool {
	q := &w.am.prefetch
	k := slices.IndexFunc(q.active, func(f activePrefetch) bool { return f.slot == i })
	f := q.active[k]
	q.active = slices.Delete(q.active, k, k+1)
	q.activeBytes -= f.n
	w.slab.Bufs[i] = nil
	w.slab.release(i)
	kept := false
	if st == ucs.OK {
		n := int(f.n) + wire.WordHeaderLen(f.word)
		kept = w.dispatch(f.rx, f.word, w.pool.Bytes(f.chunk)[:n:n], amStorage{kind: storagePool, chunk: f.chunk})
	}
	if !kept && st != ucs.BufferExposed {
		w.freeBudgeted(f.chunk)
	}
	if st != ucs.Closed {
		w.prefetchNext()
	}
	return true
}

// dropPrefetches removes the message that rx announced as id, if its data has not been
// requested. With every it removes all such messages of s. It reports whether it
// removed any.
func (rx *rxConn) dropPrefetches(id uint64, all bool) bool {
	w := rx.w
	q := &w.am.prefetch
	n := len(q.queued)
	q.queued = slices.DeleteFunc(q.queued, func(a queuedPrefetch) bool {
		if a.rx != rx || !all && a.id != id {
			return false
		}
		rx.pendingReplies--
		w.freeBudgeted(a.header)
		return true
	})
	return len(q.queued) < n
}
