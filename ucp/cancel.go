package ucp

import (
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Cancellation and abort. Invariant: an operation completes only when no device, and no
// peer by an exposed region, can access its buffer any more. So a send whose parts the
// transport still has (parts > 0), or whose memory is exposed, is not canceled; it completes
// when that access ends. Any other send or receive completes at once. If the peer has a
// part of the message or its RTS, it is notified, so that its own operation completes too.

// cancelSend completes the send in slot i with Canceled, and the caller owns the buffer. A
// send whose buffer is in use completes when that ends.
func (w *thread) cancelSend(i uint32) {
	s := &w.slab.Slots[i]
	if s.Parts > 0 || exposes(s) {
		return
	}
	lane := s.Lane
	w.notifyCancel(i)
	w.end(i, ucs.Canceled)
	w.resumeOnCredit(lane) // operations that wait behind it may need no credit
}

// cancelRecv completes the receive in slot i with Canceled. If it was matched, the
// message is lost.
func (w *thread) cancelRecv(i uint32) {
	s := request.As[recvOp](&w.slab.Slots[i])
	if s.Op == request.TagRecv && w.matching.posted.Remove(i) {
		w.end(i, ucs.Canceled)
		return
	}
	if s.requested() {
		w.rxConns[s.rx].reject(s.senderID, ucs.Canceled, "its receive was canceled")
		w.completeFetch(i, ucs.Canceled)
		return
	}
	for _, src := range w.rxConns {
		if src != nil && src.into == reasmRecv && src.recvSlot == i {
			src.into = reasmDiscard
			w.end(i, ucs.Canceled)
			return
		}
	}
}

// notifyCancel notifies the peer that no more of the send in slot i will be sent. The caller
// completes the send right after it.
func (w *thread) notifyCancel(i uint32) {
	s := request.As[sendOp](&w.slab.Slots[i])
	switch s.phase {
	case phaseRTS:
		w.control(s.Lane, control{id: wire.Cancel, hdr: w.slab.ID(i), n: 1, a: wire.CancelRTS})
	case phaseData:
		if s.off < s.length {
			w.control(s.Lane, control{id: wire.Cancel, hdr: s.hdr, n: 1, a: wire.CancelData})
		}
	case phaseNew:
		if s.off == 0 {
			return
		}
		// The receiver expects the next fragment. The notification takes the place of the send's
		// token in the lane's pending queue: it must arrive before the next fragmented message.
		lane, number := s.Lane, s.number
		var waiting []uint32
		w.lanes[lane].ep.PendingPurge(func(t uct.Token) {
			k := w.slab.Find(uint64(t))
			if k == 0 || w.slab.Slots[k].State != request.StateLive {
				return
			}
			w.clearPending(k)
			if k == i {
				k = w.slab.Alloc(request.CancelFrag)
				g := request.As[sendOp](&w.slab.Slots[k])
				g.Lane, g.number, g.Flags = lane, number, request.FlagReported
			}
			waiting = append(waiting, k)
		})
		for _, k := range waiting {
			if st := w.try(k); st != ucs.InProgress {
				w.end(k, st)
			}
		}
	default: // the peer has the whole message, or reads exposed memory
	}
}

// cancelFragOperation notifies the receiver that a fragmented message will not be continued.
var cancelFragOperation = operation{progress: func(w *thread, i uint32) ucs.Status {
	s := request.As[sendOp](&w.slab.Slots[i])
	l := &w.lanes[s.Lane]
	if l.state == laneFailed {
		return l.status()
	}
	return l.ep.AMShort(wire.Next, uint64(s.number), nil)
}}

// abort fails the operations of endpoint k that have not completed, with reason. Those whose
// buffer a transport or the peer uses get the status and complete when that use ends. A
// matched receive completes with its message.
func (w *thread) abort(k uint32, reason error) {
	lane := w.eps[k].lane
	noCredit := w.lanes[lane].is(slowNoCredit)
	w.lanes[lane].setSlow(slowNoCredit, false) // what waits behind the endpoint's sends belongs to the endpoint too
	for i := uint32(1); int(i) < len(w.slab.Slots); i++ {
		s := &w.slab.Slots[i]
		if s.State != request.StateLive || s.EP != k {
			continue
		}
		if s.Flags&request.FlagChild != 0 {
			// Its parent completes here too, so no completion is reported. Its token stays
			// in the pending queue of a lane that others may use, and is skipped there.
			w.clearPending(i)
			if s.Op == request.Flush {
				w.unlinkFlush(i)
			}
			w.slab.release(i)
			continue
		}
		if s.Op == request.TagRecv && !w.matching.posted.Remove(i) {
			continue // matched: its message will soon be complete
		}
		s.Status = ucs.Canceled
		emulated := s.Op >= request.Put && s.Op <= request.Fetch && request.As[rmaOp](s).form&formEmulated != 0 // no device uses its buffer
		if s.Parts > 0 && s.Op != request.Flush && !emulated || exposes(s) && w.lanes[s.Lane].refs > 1 {
			continue // a transport, or a peer on a connection with other users, uses the buffer; it completes when that ends
		}
		if s.Op.Sends() {
			w.notifyCancel(i)
		}
		w.slab.saveErr(i, &OpError{Op: w.slab.Slots[i].Op.String(), Peer: w.peerName(k), Lane: w.laneName(w.slab.Slots[i].Lane), Err: reason})
		w.end(i, ucs.Canceled)
	}
	w.lanes[lane].setSlow(slowNoCredit, noCredit)
	w.resumeOnCredit(lane)
	for i := w.laneOf[w.eps[k].peer]; i != 0; i = w.lanes[i].next {
		if w.lanes[i].flushes > 0 {
			w.resumeFlushes(i) // a flush of the worker may have waited behind a send of the endpoint
		}
	}
}
