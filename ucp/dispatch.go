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
func (p *port) handleOther(d *uct.Desc, data []byte) bool {
	s := p.source(d.RxConn)
	if s.bad {
		p.w.count.Inc(cntProtocolError)
		return false
	}
	switch d.ID {
	case amEager:
		if p.w.budget.exhausted {
			p.w.requestRndvOnly(s)
		}
		p.w.arrive(d.Header, data)
	case amSync:
		p.arriveSync(s, d.Header, data)
	case amSyncAck:
		p.acked(s, d.Header, data)
	case amRTS:
		p.arriveRTS(s, d.Header, data)
	case amRTR:
		p.asked(s, d.Header, data)
	case amRTL:
		p.askedToLend(s, d.Header, data)
	case amKey:
		p.lent(s, d.Header, data)
	case amTaken:
		p.taken(s, d.Header, data)
	case amData:
		p.data(s, d.Header, data)
	case amRefuse:
		p.refused(s, d.Header, data)
	case amGiveUp:
		p.gaveUp(s, d.Header, data)
	case amThrottle:
		p.throttle(s, d.Header, data)
	case amFirst:
		p.handleFirst(s, d.Header, data)
	case amNext:
		p.handleNext(s, d.Header, data)
	case amPeer:
		p.peerSays(s, d.Header, data)
	case amPut:
		p.swPut(s, d.Header, data)
	case amGet:
		p.swGet(s, d.Header, data)
	case amAtomic:
		p.swAtomic(s, d.Header, data)
	case amFlush:
		p.swFlush(s, data)
	case amGot:
		p.swGot(s, d.Header, data)
	case amDone:
		p.swDone(s, d.Header, data)
	case amUser, amUserFirst, amUserRTS:
		return p.handleUser(s, d, data)
	default:
		p.garbage(s)
	}
	return false
}

// payloadUint64 returns the k-th 8 bytes of a payload, which is long enough.
func payloadUint64(data []byte, k int) uint64 { return binary.LittleEndian.Uint64(data[8*k:]) }
