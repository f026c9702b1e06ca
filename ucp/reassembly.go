package ucp

import (
	"encoding/binary"
	"math"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
)

// reasmTarget is the destination of the fragments of an rx connection.
type reasmTarget uint8

const (
	reasmNone reasmTarget = iota // no message is being reassembled
	reasmRecv
	reasmPool
	reasmHandler // pool memory, then a handler
	reasmDiscard // none: the receive was canceled, or there is no handler
)

// maxPrealloc is the maximum memory in bytes that is allocated on the length announced by
// a sender. Beyond it, memory grows as the data arrives.
const maxPrealloc = 1 << 20

// handleFirst receives the first fragment of a tag message.
func (wi *workerIface) handleFirst(rx *rxConn, tag uint64, data []byte) {
	w := wi.t
	if rx.into != reasmNone || len(data) <= wire.FirstHeaderLen {
		wi.protocolError(rx)
		return
	}
	rx.total, rx.got, rx.tag = binary.LittleEndian.Uint64(data), 0, tag
	data = data[wire.FirstHeaderLen:]
	if rx.total > math.MaxInt || uint64(len(data)) >= rx.total {
		wi.protocolError(rx)
		return
	}
	rx.fragSeq++
	if i := w.matching.posted.Match(tag); i != 0 {
		rx.reassembleInto(i)
	} else if w.ctx.features&FeatureTag == 0 {
		w.count.Inc(cntUnhandled)
		rx.into = reasmDiscard
	} else {
		rx.into = reasmPool
		rx.chunk = w.allocBudgeted(int(min(rx.total, maxPrealloc)))
		rx.unexpID = w.matching.add(w.count, tag, unexpected{kind: unexpPartial, n: rx.total, rx: rx.index})
		if w.matching.budget.exhausted {
			rx.requestRndvOnly()
		}
	}
	rx.addFragment(data)
}

// reassembleInto directs the remaining fragments of rx's message to the receive in slot i.
func (rx *rxConn) reassembleInto(i uint32) {
	w := rx.w
	rx.into, rx.recvSlot = reasmRecv, i
	r := request.As[recvOp](&w.slab.Slots[i])
	r.tag, r.length = rx.tag, rx.total
}

// handleNext receives a following fragment. An empty one means that the sender canceled the
// message.
func (wi *workerIface) handleNext(rx *rxConn, number uint64, data []byte) {
	switch {
	case rx.into == reasmNone || number != uint64(rx.fragSeq) || uint64(len(data)) > rx.total-rx.got:
		wi.protocolError(rx)
	case len(data) == 0:
		rx.dropPartial(ucs.Canceled, nil) // the sender canceled it
	default:
		rx.addFragment(data)
	}
}

// addFragment copies data to the destination of the message, and completes the message with its
// last byte.
func (rx *rxConn) addFragment(data []byte) {
	w := rx.w
	switch rx.into {
	case reasmRecv:
		w.slab.store(rx.recvSlot, data, rx.got)
	case reasmPool, reasmHandler:
		old := w.pool.Bytes(rx.chunk)
		if n := rx.got + uint64(len(data)); n > uint64(len(old)) { // the memory doubles up to the length of the message
			c := w.allocBudgeted(int(min(rx.total, max(n, 2*uint64(len(old))))))
			copy(w.pool.Bytes(c), old[:rx.got])
			w.freeBudgeted(rx.chunk)
			rx.chunk = c
		}
		copy(w.pool.Bytes(rx.chunk)[rx.got:], data)
	default:
	}
	rx.got += uint64(len(data))
	if rx.got < rx.total {
		return
	}
	into := rx.into
	rx.into = reasmNone
	switch into {
	case reasmRecv:
		st := ucs.OK
		if rx.total > w.slab.room(rx.recvSlot) {
			st = ucs.Truncated
		}
		w.end(rx.recvSlot, st)
	case reasmPool:
		u := &w.matching.unexpected[rx.unexpID]
		u.kind, u.rx, u.chunk = unexpWhole, 0, rx.chunk
	case reasmHandler:
		c := rx.chunk
		b := w.pool.Bytes(c)[:rx.total:rx.total]
		if !w.dispatch(rx, rx.tag, b, amStorage{kind: storagePool, chunk: c}) {
			w.freeBudgeted(c)
		}
	default:
	}
}

// dropPartial ends the message that is being reassembled from rx, if any. Its receive completes
// with st, because of reason; nil: the error of st.
func (rx *rxConn) dropPartial(st ucs.Status, reason error) {
	w := rx.w
	into := rx.into
	rx.into = reasmNone
	switch into {
	case reasmRecv:
		rx.saveReason(rx.recvSlot, reason)
		w.end(rx.recvSlot, st)
	case reasmPool:
		w.matching.unexpected[rx.unexpID].chunk = rx.chunk
		w.dropUnexpected(rx.unexpID, st, reason)
	case reasmHandler:
		w.freeBudgeted(rx.chunk)
	default:
	}
}
