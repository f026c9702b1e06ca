package ucp

import (
	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
)

// handleRTS receives an RTS.
func (wi *workerIface) handleRTS(rx *rxConn, tag uint64, data []byte) {
	w := wi.t
	if len(data) != wire.RTSLen || rx.peer == 0 {
		wi.protocolError(rx)
		return
	}
	id, n := wire.ParseRTS(data)
	if n > wire.MaxMessage {
		wi.protocolError(rx)
		return
	}
	if i := w.matching.posted.Match(tag); i != 0 {
		request.As[recvOp](&w.slab.Slots[i]).tag = tag
		rx.requestData(i, id, n)
		return
	}
	if why := w.rejectsTags(); why != "" {
		rx.reject(id, ucs.Rejected, why)
		return
	}
	rx.pendingReplies++
	w.matching.add(w.count, tag, unexpected{kind: unexpRTS, n: n, id: id, rx: rx.index})
}

// requestData requests n bytes from the sender of rx, which sent an RTS with this id. They go
// into the buffer of slot i, as far as it is long enough. The receive in slot i completes
// when they have arrived. It is truncated if n is larger than the buffer.
func (rx *rxConn) requestData(i uint32, id, n uint64) {
	w := rx.w
	if fault.Enabled {
		fault.At(fault.RTR)
	}
	r := request.As[recvOp](&w.slab.Slots[i])
	r.length, r.senderID, r.received = n, id, 0
	r.recv, r.rx = recvRequested, rx.index
	r.EP, r.Flags = 0, r.Flags&^request.FlagTied // from now on the receive depends on the message's sender
	rx.pendingFetches++
	w.count.Inc(cntRndvRequested)
	wanted := min(n, w.slab.room(i))
	if rx.startFetch(i, id, n, wanted) {
		return
	}
	ask := control{id: wire.RTR, hdr: id, n: wire.RTRLen, a: w.slab.ID(i), b: wanted}
	if wanted >= readMin && !w.slab.inPieces(i) {
		if lane := rx.openReplyLane(); lane != 0 {
			wi := w.ifaces[w.lanes[lane].iface]
			if wi.canRead() && wanted <= uint64(wi.iface.Attr().Get.MaxZcopy) {
				ask.id = wire.RTL
				request.As[recvOp](&w.slab.Slots[i]).recv = recvAwaitsKey
			}
		}
	}
	if !rx.reply(ask) {
		w.completeFetch(i, ucs.Unreachable)
		return
	}
	if wanted == 0 {
		w.dataReceived(i)
	}
}

// dataReceived completes a receive whose data has arrived.
func (w *thread) dataReceived(i uint32) {
	st := ucs.OK
	if request.As[recvOp](&w.slab.Slots[i]).length > w.slab.room(i) {
		st = ucs.Truncated
	}
	w.completeFetch(i, st)
}

// completeFetch completes a receive that has requested its data.
func (w *thread) completeFetch(i uint32, st ucs.Status) {
	r := request.As[recvOp](&w.slab.Slots[i])
	w.rxConns[r.rx].pendingFetches--
	r.recv = recvPosted
	w.end(i, st)
}

// handleData receives the next bytes of a requested message.
func (wi *workerIface) handleData(rx *rxConn, id uint64, data []byte) {
	w := wi.t
	i := wi.fetchByID(rx, id)
	if i == 0 {
		return
	}
	r := request.As[recvOp](&w.slab.Slots[i])
	wanted := min(r.length, w.slab.room(i))
	if len(data) == 0 || uint64(len(data)) > wanted-r.received {
		wi.protocolError(rx)
		return
	}
	w.slab.store(i, data, r.received)
	r.received += uint64(len(data))
	if r.received == wanted {
		w.dataReceived(i)
	}
}

// reject notifies the sender of rx that its message with this id will not be
// received, and why.
func (rx *rxConn) reject(id uint64, st ucs.Status, reason string) {
	w := rx.w
	w.count.Inc(cntRejected)
	reason = reason[:min(len(reason), wire.MaxReason)]
	rx.reply(control{id: wire.Reject, hdr: id, text: append([]byte{byte(st)}, reason...)})
}

// handleCancel receives a cancel of the sender. data is wire.CancelRTS or wire.CancelData.
func (wi *workerIface) handleCancel(rx *rxConn, id uint64, data []byte) {
	w := wi.t
	switch {
	case len(data) != 1 || data[0] > wire.CancelData || rx.peer == 0:
		wi.protocolError(rx)
	case data[0] == wire.CancelData:
		if i := wi.fetchByID(rx, id); i != 0 {
			w.completeFetch(i, ucs.Canceled)
		}
	default:
		rx.endAnnounced(id, ucs.Canceled, nil)
	}
}

// endAnnounced ends the message that the sender of rx announced as id, and its receive, with st
// because of reason; nil: the error of st. A receive that is being read from the sender's memory
// completes when the read ends. Without such a message, the call crossed a message of this worker.
func (rx *rxConn) endAnnounced(id uint64, st ucs.Status, reason error) {
	w := rx.w
	if rx.pendingReplies > 0 { // no receive has requested it
		for k := range w.matching.unexpected {
			if u := &w.matching.unexpected[k]; u.kind == unexpRTS && u.rx == rx.index && u.id == id {
				w.dropUnexpected(uint32(k), st, reason)
				return
			}
		}
		err := reason
		if err == nil {
			err = statusErr(st)
		}
		if rx.dropPrefetches(id, false) || w.am.retainer.endRndvs(rx, id, false, err, st) {
			return
		}
	}
	if rx.pendingFetches == 0 && st == ucs.Canceled {
		return // a message that is being read is not canceled
	}
	for i := range w.slab.Slots {
		s := &w.slab.Slots[i]
		if !s.Op.Receives() || s.State != request.StateLive {
			continue
		}
		switch r := request.As[recvOp](s); {
		case r.senderID != id || r.rx != rx.index:
		case r.requested():
			rx.failFetch(uint32(i), st, reason)
			return
		case r.recv == recvReading:
			if rx.saveReason(uint32(i), reason); st == ucs.Canceled {
				r.recv = recvCanceled
			}
			return
		}
	}
}

// failFetch completes the receive in slot i, whose data rx will not deliver, with st because of
// reason; nil: the error of st.
func (rx *rxConn) failFetch(i uint32, st ucs.Status, reason error) {
	rx.saveReason(i, reason)
	rx.w.completeFetch(i, st)
}

// fetchesFrom reports whether the slot is a receive that has requested data from src.
func fetchesFrom(s *request.Slot, src *rxConn) bool {
	return s.Op.Receives() && s.State == request.StateLive && request.As[recvOp](s).requested() && request.As[recvOp](s).rx == src.index
}

// failRendezvous fails the messages that rx announced and the receives that
// requested data from it.
func (rx *rxConn) failRendezvous(reason error) {
	w := rx.w
	if rx.pendingReplies > 0 {
		rx.dropPrefetches(0, true)
		w.am.retainer.endRndvs(rx, 0, true, reason, ucs.PeerFailed)
		for k := range w.matching.unexpected {
			u := &w.matching.unexpected[k]
			if u.rx != rx.index {
				continue
			}
			switch u.kind {
			case unexpRTS:
				w.dropUnexpected(uint32(k), ucs.PeerFailed, reason)
			case unexpSync:
				u.kind, u.rx = unexpWhole, 0 // the message has arrived, and its sender is dead
				rx.pendingReplies--
			default:
			}
		}
	}
	for i := 0; rx.pendingFetches > 0 && i < len(w.slab.Slots); i++ {
		if fetchesFrom(&w.slab.Slots[i], rx) {
			rx.failFetch(uint32(i), ucs.PeerFailed, reason)
		}
	}
}

// sendByID returns the slot of the send with this id, if it goes to the sender of s. It
// returns 0 if the send has completed. Any other id fails s.
func (wi *workerIface) sendByID(rx *rxConn, id uint64) uint32 {
	w := wi.t
	i, what := w.slab.CheckID(id)
	if what == request.IDCompleted && rx.peer != 0 {
		w.count.Inc(cntStale)
		return 0
	}
	if what == request.IDLive && rx.peer != 0 {
		if k := &w.slab.Slots[i]; k.Op.Sends() && w.lanes[k.Lane].peer == rx.peer {
			return i
		}
	}
	wi.protocolError(rx)
	return 0
}

// fetchByID returns the slot of the receive with this id, if it waits for data of s. It
// returns 0 if the receive has completed. Any other id fails s.
func (wi *workerIface) fetchByID(rx *rxConn, id uint64) uint32 {
	w := wi.t
	i, what := w.slab.CheckID(id)
	if what == request.IDCompleted && rx.peer != 0 {
		w.count.Inc(cntStale)
		return 0
	}
	if what == request.IDLive {
		if fetchesFrom(&w.slab.Slots[i], rx) {
			return i
		}
	}
	wi.protocolError(rx)
	return 0
}
