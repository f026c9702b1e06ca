package ucp

import (
	"encoding/binary"

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
	case amEager:
		if wi.w.t.budget.exhausted {
			wi.w.t.requestRndvOnly(rx)
		}
		wi.w.t.handleEager(d.Header, data)
	case amSync:
		wi.handleSync(rx, d.Header, data)
	case amSyncAck:
		wi.handleSyncAck(rx, d.Header, data)
	case amRTS:
		wi.handleRTS(rx, d.Header, data)
	case amRTR:
		wi.handleRTR(rx, d.Header, data)
	case amRTL:
		wi.handleRTL(rx, d.Header, data)
	case amKey:
		wi.handleKey(rx, d.Header, data)
	case amReadDone:
		wi.handleReadDone(rx, d.Header, data)
	case amData:
		wi.handleData(rx, d.Header, data)
	case amReject:
		wi.handleReject(rx, d.Header, data)
	case amCancel:
		wi.handleCancel(rx, d.Header, data)
	case amFlowControl:
		wi.handleFlowControl(rx, d.Header, data)
	case amFirst:
		wi.handleFirst(rx, d.Header, data)
	case amNext:
		wi.handleNext(rx, d.Header, data)
	case amPeer:
		wi.handlePeerAddress(rx, d.Header, data)
	case amPut:
		wi.handlePut(rx, d.Header, data)
	case amGet:
		wi.handleGet(rx, d.Header, data)
	case amAtomic:
		wi.handleAtomic(rx, d.Header, data)
	case amFlush:
		wi.handleFlush(rx, data)
	case amGetReply:
		wi.handleGetReply(rx, d.Header, data)
	case amReply:
		wi.handleReply(rx, d.Header, data)
	case amUser, amUserFirst, amUserRTS:
		return wi.handleUser(rx, d, data)
	default:
		wi.protocolError(rx)
	}
	return false
}

// payloadUint64 returns the k-th 8 bytes of a payload, which is long enough.
func payloadUint64(data []byte, k int) uint64 { return binary.LittleEndian.Uint64(data[8*k:]) }
