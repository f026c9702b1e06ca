package ucp

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
)

// Abort of an endpoint, at both sides.
//
// The peer receives an Abort message with the cause for each send of the endpoint that one of its
// requests waits for. If the endpoint was the last one to the peer's worker, it also receives one
// for its own endpoints. The messages are sent after everything that the transport has accepted.
// Delivery is best effort: a message that waits for resources is lost if the lane fails.
//
// Invariant: an abort fails nothing of other endpoints to the same peer, at either side, while one
// of them is open.

// abortNotice is what the peer receives of an abort: the text of the cause.
type abortNotice struct{ text string }

// newAbortNotice returns the notice of an abort with cause. The text is cut between characters.
func newAbortNotice(cause error) *abortNotice {
	if cause == nil {
		return new(abortNotice)
	}
	text := strings.ToValidUTF8(cause.Error(), "?")
	n := min(len(text), wire.MaxReason)
	for n < len(text) && n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return &abortNotice{text[:n]}
}

// payload returns the payload of the Abort that ends what.
func (n *abortNotice) payload(what byte) []byte { return append([]byte{what}, n.text...) }

// isLastEndpoint reports whether no endpoint to the peer of endpoint k is open but k.
func (w *thread) isLastEndpoint(k uint32) bool {
	for o := range w.eps {
		if s := &w.eps[o]; uint32(o) != k && s.peer == w.eps[k].peer && (s.state == epIdle || s.state == epActive) {
			return false
		}
	}
	return true
}

// abort fails the operations of endpoint k that have not completed, with reason. Those whose
// buffer a transport or the peer uses get the status and complete when that use ends. A
// matched receive completes with its message. With a notice the peer receives Abort messages.
// Without one it receives that its messages are canceled.
func (w *thread) abort(k uint32, reason error, notice *abortNotice) {
	lane := w.eps[k].lane
	if notice != nil && lane != 0 && w.isLastEndpoint(k) {
		w.control(lane, control{id: wire.Abort, text: notice.payload(wire.AbortPeer)})
	}
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
			w.notifyCancel(i, notice)
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

// handleAbort receives an Abort. What it names completes with ErrPeerFailed and the sender's text.
func (wi *workerIface) handleAbort(rx *rxConn, id uint64, data []byte) {
	w := wi.t
	if len(data) < 1 || len(data) > 1+wire.MaxReason || data[0] > wire.AbortPeer || rx.peer == 0 {
		wi.protocolError(rx)
		return
	}
	reason := fmt.Errorf("%w: it aborted the endpoint", ErrPeerFailed)
	if text := strings.ToValidUTF8(string(data[1:]), "?"); text != "" {
		reason = fmt.Errorf("%w: %s", reason, text)
	}
	switch data[0] {
	case wire.AbortRTS:
		rx.endAnnounced(id, ucs.PeerFailed, reason)
	case wire.AbortData:
		if i := wi.fetchByID(rx, id); i != 0 {
			rx.failFetch(i, ucs.PeerFailed, reason)
		}
	case wire.AbortFragments:
		if rx.into == reasmNone || id != uint64(rx.fragSeq) {
			wi.protocolError(rx)
			return
		}
		rx.dropPartial(ucs.PeerFailed, reason)
	default:
		w.count.Inc(cntFailures)
		for i := range w.lanes {
			if l := &w.lanes[i]; l.ep != nil && l.peer == rx.peer && l.state != laneFailed {
				w.cancelLane(uint32(i), reason)
			}
		}
		for k := range w.eps { // those without a lane
			s := &w.eps[k]
			if s.state == epIdle && s.peer == rx.peer {
				s.enter(epActive)
				w.failEndpoint(uint32(k), ucs.PeerFailed, reason)
			}
		}
		w.failTiedRecvs()
		w.dropFromEndpoint(rx.sender())
	}
}
