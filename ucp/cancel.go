package ucp

import (
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Cancellation. Invariant: an operation completes only when no device, and no
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
	if w.slab.withdraw(i) {
		w.notifyCancel(i, nil)
		w.end(i, ucs.Canceled)
	} else {
		w.end(i, ucs.OK) // the receiver has copied the message; its ReadDone finds no send
	}
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
	if s.requested() || w.cancelFetch(i) {
		s = request.As[recvOp](&w.slab.Slots[i]) // the slots may have moved
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

// notifyCancel notifies the peer that no more of the send in slot i will be sent. With notice it
// sends an Abort instead of the cancel. The caller completes the send right after it.
func (w *thread) notifyCancel(i uint32, notice *abortNotice) {
	s := request.As[sendOp](&w.slab.Slots[i])
	m := control{id: wire.Cancel, n: 1}
	what := byte(wire.AbortRTS)
	switch {
	case s.phase == phaseRTS, s.phase == phaseExposed && notice != nil:
		m.hdr, m.a = w.slab.ID(i), wire.CancelRTS
	case s.phase == phaseData && s.off < s.length:
		m.hdr, m.a, what = s.hdr, wire.CancelData, wire.AbortData
	case s.phase == phaseNew && s.off > 0:
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
				if w.slab.Bufs[k] = nil; notice != nil {
					w.slab.Bufs[k] = notice.payload(wire.AbortFragments)
				}
			}
			waiting = append(waiting, k)
		})
		for _, k := range waiting {
			if st := w.try(k); st != ucs.InProgress {
				w.end(k, st)
			}
		}
		return
	default: // the peer has the whole message, or nothing, or reads exposed memory
		return
	}
	if notice != nil {
		m = control{id: wire.Abort, hdr: m.hdr, text: notice.payload(what)}
	}
	w.control(s.Lane, m)
}

// cancelFragOperation notifies the receiver that a fragmented message will not be continued: by an
// empty fragment, or by the Abort in the slot's buffer.
var cancelFragOperation = operation{progress: func(w *thread, i uint32) ucs.Status {
	s := request.As[sendOp](&w.slab.Slots[i])
	l := &w.lanes[s.Lane]
	if l.state == laneFailed {
		return l.status()
	}
	abort := w.slab.Bufs[i]
	if abort == nil {
		return l.ep.AMShort(wire.Next, uint64(s.number), nil)
	}
	n := min(len(abort), l.maxBcopy)
	b, st := l.ep.ReserveAM(wire.Abort, uint64(s.number), n)
	if st == ucs.OK {
		l.ep.CommitAM(copy(b, abort[:n]))
	}
	return st
}}
