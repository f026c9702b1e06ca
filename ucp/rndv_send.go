package ucp

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Rendezvous: the sender keeps a long message until the receiver requests it.
//
//	sender                                  receiver
//	  RTS tag, its id, length       ──▶      matched, or queued as unexpected
//	                                ◀──      RTR the sender's id, its own id, bytes wanted
//	  data, data, data, its id      ──▶      straight into the buffer
//
// Both ids are ids of slots. Each side cancels by one more message: the receiver sends
// wire.Reject, the sender wire.Cancel. A cancel may cross the messages that it cancels. So a
// message with the id of a completed operation is dropped. An id that the peer was never
// sent is a protocol violation (sendByID).

// usesRndv reports whether the message in s is sent by rendezvous.
func (l *lane) usesRndv(s *sendOp) bool {
	switch {
	case l.is(slowRndvOnly) || s.wants&sendRndv != 0:
		return true
	case s.wants&sendSync != 0 && int(s.length) > l.maxBcopy-wire.SyncHeaderLen:
		return true
	default:
		return s.length > l.maxEager && s.wants&sendEager == 0
	}
}

// scratchSize is the length of thread.scratch. A transport's short messages are rarely longer.
const scratchSize = 64

// reserve returns n bytes for a message that commit sends: the thread's scratch if they fit into a short message, and a
// reservation otherwise.
func (l *lane) reserve(w *thread, id uct.AMID, hdr uint64, n int) ([]byte, ucs.Status) {
	if n <= min(l.ifaceMaxShort, scratchSize) {
		return w.scratch[:n], ucs.OK
	}
	return l.ep.ReserveAM(id, hdr, n)
}

// commit sends b, which reserve returned.
func (l *lane) commit(id uct.AMID, hdr uint64, b []byte) ucs.Status {
	if len(b) <= min(l.ifaceMaxShort, scratchSize) {
		return l.ep.AMShort(id, hdr, b)
	}
	l.ep.CommitAM(len(b))
	return ucs.OK
}

// sendRTS sends the RTS of the send in slot i.
func (w *thread) sendRTS(i uint32, l *lane) ucs.Status {
	if !w.checkCredit(w.slab.Slots[i].Lane) {
		return ucs.NoResource
	}
	if fault.Enabled {
		fault.At(fault.RTS)
	}
	l.offer(w, i)
	s := request.As[sendOp](&w.slab.Slots[i])
	id, hdr, header := wire.RTS, s.hdr, []byte(nil)
	if s.Op == request.AMSend {
		id, header = wire.UserRTS, w.savedHeader(i)
		if l.wantsEager(s) {
			hdr |= wire.WordPrefetch
		}
	}
	b, st := l.reserve(w, id, hdr, wire.RTSLen+len(header)) // not a control message: it keeps its order among the messages
	if st != ucs.OK {
		return st
	}
	wire.PutRTS(b, w.slab.ID(i), s.length)
	copy(b[wire.RTSLen:], header)
	if st := l.commit(id, hdr, b); st != ucs.OK {
		return st
	}
	w.count.Inc(cntRndvSent)
	w.awaitAck(i, phaseRTS)
	return ucs.InProgress
}

// sendSync sends the message in slot i eagerly. The send completes when it is matched.
func (w *thread) sendSync(i uint32, l *lane) ucs.Status {
	if !w.checkCredit(w.slab.Slots[i].Lane) {
		return ucs.NoResource
	}
	s := request.As[sendOp](&w.slab.Slots[i])
	b, st := l.reserve(w, wire.Sync, s.hdr, wire.SyncHeaderLen+int(s.length))
	if st != ucs.OK {
		return st
	}
	binary.LittleEndian.PutUint64(b, w.slab.ID(i))
	w.slab.fill(b[wire.SyncHeaderLen:], i)
	if st := l.commit(wire.Sync, s.hdr, b); st != ucs.OK {
		return st
	}
	w.awaitAck(i, phaseMatch)
	return ucs.InProgress
}

// handleSyncAck receives the acknowledgement of a sync send's match, and completes the send.
func (wi *workerIface) handleSyncAck(rx *rxConn, id uint64, data []byte) {
	i := wi.sendByID(rx, id)
	if i == 0 {
		return
	}
	if request.As[sendOp](&wi.t.slab.Slots[i]).phase != phaseMatch || len(data) != 0 {
		wi.protocolError(rx)
		return
	}
	wi.t.end(i, ucs.OK)
}

// handleRTR receives an RTR, or an RTL if read is true: the receiver requests the first wanted
// bytes of an announced message. An RTL exposes the memory if that is possible. Otherwise the
// data is sent.
func (wi *workerIface) handleRTR(rx *rxConn, id uint64, data []byte, read bool) {
	if len(data) != wire.RTRLen {
		wi.protocolError(rx)
		return
	}
	i := wi.sendByID(rx, id)
	if i == 0 {
		return
	}
	w := wi.t
	m := request.As[sendOp](&w.slab.Slots[i])
	lane, exposed := m.Lane, m.phase == phaseExposed
	recvID, wanted := wire.Uint64(data, 0), wire.Uint64(data, 1)
	if m.phase != phaseRTS && (!exposed || read) || wanted > m.length {
		wi.protocolError(rx)
		return
	}
	if read && wanted > 0 && w.expose(i, recvID, wanted) {
		w.returnCredit(lane)
		return
	}
	w.slab.withdraw(i) // the receiver does not fetch it
	m.phase = phaseData
	m.hdr, m.length, m.off = recvID, wanted, 0
	if exposed {
		w.slab.detachMem(i)
		w.lanes[lane].unuse() // the peer cannot read the exposed memory
	} else {
		w.returnCredit(lane)
	}
	if st := w.try(i); st != ucs.InProgress {
		w.end(i, st)
	}
	w.closeIfDrained(lane)
}

// dataTurn is the number of bytes of one message that are sent before others that wait
// get their turn.
const dataTurn = 16 << 10

// sendData sends the requested data, as far as the transport has resources. It returns Busy
// if the send moved to the end of its pending queue. The RTS had its place in the order of
// the lane's operations. The data needs none, so it is sent on a stalled lane too.
func (w *thread) sendData(i uint32, l *lane) ucs.Status {
	s, ep := request.As[sendOp](&w.slab.Slots[i]), l.transport()
	start := s.off
	for s.off < s.length {
		n := int(min(uint64(l.maxBcopy), s.length-s.off))
		if s.off%dataTurn < uint64(l.maxBcopy) && s.off != start && w.resuming && l.pending > 1 &&
			s.Flags&request.FlagPending != 0 && ep.PendingAdd(w.slab.Token(i)) == ucs.OK {
			return ucs.Busy
		}
		if fault.Enabled {
			fault.At(fault.Data)
			if s.off+uint64(n) == s.length {
				fault.At(fault.LastData)
			}
		}
		b, st := ep.ReserveAM(wire.Data, s.hdr, n)
		if st != ucs.OK {
			return st
		}
		n = w.slab.fill(b, i)
		ep.CommitAM(n)
		s.off += uint64(n)
	}
	return ucs.OK
}

// handleReject receives the receiver's refusal of a message, and completes the send.
func (wi *workerIface) handleReject(rx *rxConn, id uint64, data []byte) {
	w := wi.t
	if len(data) < 1 || len(data) > 1+wire.MaxReason {
		wi.protocolError(rx)
		return
	}
	i := wi.sendByID(rx, id)
	if i == 0 {
		return
	}
	m := request.As[sendOp](&w.slab.Slots[i])
	if m.phase < phaseMatch {
		wi.protocolError(rx)
		return
	}
	st, sentinel := ucs.Rejected, ErrRejected
	if ucs.Status(data[0]) == ucs.Canceled {
		st, sentinel = ucs.Canceled, ErrCanceled
	}
	err, lane := fmt.Errorf("%w: %s", sentinel, strings.ToValidUTF8(string(data[1:]), "?")), m.Lane
	w.slab.saveErr(i, &OpError{Op: m.Op.String(), Peer: w.peerName(m.EP), Lane: w.laneName(lane), Err: err})
	w.end(i, st)
	w.closeIfDrained(lane)
}

// handleFlowControl receives a wire.FlowControl: the sender of rx forbids eager messages (on is 1) or
// allows them again.
func (wi *workerIface) handleFlowControl(rx *rxConn, on uint64, data []byte) {
	w := wi.t
	if on > 1 || len(data) != 0 || rx.peer == 0 {
		wi.protocolError(rx)
		return
	}
	for i := range w.lanes {
		if l := &w.lanes[i]; i != 0 && l.ep != nil && l.peer == rx.peer {
			l.setSlow(slowRndvOnly, on == 1)
		}
	}
}
