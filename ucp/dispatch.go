package ucp

import (
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/uct"
)

// handleOther receives all messages but eager tag and active messages in one piece, and
// every message while an rx connection has to be checked. It reports whether the
// message's memory is retained.
//
//go:noinline
func (wi *workerIface) handleOther(d *uct.Desc, data []byte) bool {
	rx := wi.rxConn(d.RxConn)
	if rx.failed {
		wi.w.t.count.Inc(cntProtocolError)
		return false
	}
	switch d.ID {
	case wire.Eager:
		if wi.w.t.budget.exhausted {
			wi.w.t.requestRndvOnly(rx)
		}
		wi.w.t.handleEager(d.Header, data)
	case wire.Sync:
		wi.handleSync(rx, d.Header, data)
	case wire.SyncAck:
		wi.handleSyncAck(rx, d.Header, data)
	case wire.RTS:
		wi.handleRTS(rx, d.Header, data)
	case wire.RTR:
		wi.handleRTR(rx, d.Header, data, false)
	case wire.RTL:
		wi.handleRTR(rx, d.Header, data, true)
	case wire.Key:
		wi.handleKey(rx, d.Header, data)
	case wire.ReadDone:
		wi.handleReadDone(rx, d.Header, data)
	case wire.Data:
		wi.handleData(rx, d.Header, data)
	case wire.Reject:
		wi.handleReject(rx, d.Header, data)
	case wire.Cancel:
		wi.handleCancel(rx, d.Header, data)
	case wire.FlowControl:
		wi.handleFlowControl(rx, d.Header, data)
	case wire.First:
		wi.handleFirst(rx, d.Header, data)
	case wire.Next:
		wi.handleNext(rx, d.Header, data)
	case wire.Peer:
		wi.handlePeerAddress(rx, d.Header, data)
	case wire.Put:
		wi.handlePut(rx, d.Header, data)
	case wire.Get:
		wi.handleGet(rx, d.Header, data)
	case wire.AtomicRequest:
		wi.handleAtomic(rx, d.Header, data)
	case wire.Flush:
		wi.handleFlush(rx, data)
	case wire.GetReply:
		wi.handleGetReply(rx, d.Header, data)
	case wire.Reply:
		wi.handleReply(rx, d.Header, data)
	case wire.User:
		if wi.w.t.budget.exhausted {
			wi.w.t.requestRndvOnly(rx)
		}
		return wi.handleUserSlow(d, data)
	case wire.UserFirst:
		if wi.w.t.budget.exhausted {
			wi.w.t.requestRndvOnly(rx)
		}
		wi.handleUserFirst(rx, d.Header, data)
	case wire.UserRTS:
		wi.handleUserRTS(rx, d.Header, data)
	default:
		wi.protocolError(rx)
	}
	return false
}
