package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucs"
)

// wantsEager reports whether the handler of the active message in s gets the data with
// the message. If flow control forces a rendezvous, the receiver fetches the data
// first.
func (w *Worker) wantsEager(s *slot) bool {
	return s.parent&sendFlagRndv == 0 && (s.length <= w.rndvThresh || s.parent&sendFlagEager != 0)
}

// usesUserRndv reports whether the active message in s is sent by rendezvous.
func (w *Worker) usesUserRndv(s *slot, l *lane) bool {
	if s.length > maxPrefetch && w.wantsEager(s) {
		return false
	}
	return w.usesRndv(s, l)
}

// sendUserRTS sends the RTS of the active message in slot i.
func (w *Worker) sendUserRTS(i uint32, l *lane) ucs.Status {
	if !w.checkCredit(w.slab.slots[i].lane) {
		return ucs.NoResource
	}
	if fault.Enabled {
		fault.At(fault.RTS)
	}
	s := &w.slab.slots[i]
	head := s.tag
	if w.wantsEager(s) {
		head |= wordPrefetch
	}
	n := rtsLen + wordHeaderLen(head)
	b, st := l.ep.ReserveAM(amUserRTS, head, n)
	if st != ucs.OK {
		return st
	}
	binary.LittleEndian.PutUint64(b, w.slab.id(i))
	binary.LittleEndian.PutUint64(b[8:], s.length)
	copy(b[rtsLen:], w.savedHeader(i))
	l.ep.CommitAM(n)
	w.rtsSent(i)
	return ucs.InProgress
}

// handleUserRTS receives the RTS of an active message.
func (wi *workerIface) handleUserRTS(rx *rxConn, head uint64, data []byte) {
	w := wi.w
	if len(data) != rtsLen+wordHeaderLen(head) || !wi.validWord(rx, head, len(data)) || rx.peer == 0 {
		wi.protocolError(rx)
		return
	}
	id, n := payloadUint64(data, 0), payloadUint64(data, 1)
	header := data[rtsLen:]
	if n > maxMessage || head&wordPrefetch != 0 && n > maxPrefetch {
		wi.protocolError(rx)
		return
	}
	h := w.am.handler(head)
	switch {
	case w.rejecting:
		w.reject(rx, id, ucs.Rejected, "its worker closes")
	case h == nil:
		w.unknownAM(AMID(head))
		w.reject(rx, id, ucs.Rejected, "no handler for this id")
	case head&wordPrefetch != 0:
		w.queuePrefetch(rx, head, id, n, header)
	default:
		w.dispatchRndv(rx, h, head, id, n, header)
	}
}

// dispatchRndv runs handler h of a rendezvous message. If the handler does not keep the
// message, the data is discarded.
func (w *Worker) dispatchRndv(rx *rxConn, h AMHandler, head, id, n uint64, header []byte) {
	m := &w.am.m
	m.ID, m.Len, m.Rendezvous = AMID(head), int(n), true
	m.Header, m.Data = header, nil
	m.storage = amStorage{kind: storageSender, rx: rx, id: id}
	if head&wordReply != 0 {
		m.From = w.fromEndpoint(rx)
	}
	w.callAM(h)
	if !m.reset() {
		w.discardRndv(rx, id)
	}
}

// discardRndv completes an announced message at its sender without transferring the data
// and without an error. It sends an RTR for 0 bytes.
func (w *Worker) discardRndv(rx *rxConn, id uint64) {
	w.reply(rx, control{id: amRTR, hdr: id, n: rtrLen})
}
