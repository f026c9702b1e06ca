package rc

import (
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// recvSlow processes a receive completion that is not a valid message on a QP with connQP.fastRecv set.
//
//go:noinline
func (f *iface) recvSlow(p *connQP, wc *verbs.WC) {
	buf := uint32(wc.ID)
	f.postedRecvs--
	switch {
	case p == nil || wc.Status != verbs.WCSuccess || p.retiredAt != 0:
		f.rx.Put(buf) // flushed, or for a retired QP
	case wc.Len < headerLen:
		f.rx.Put(buf)
		f.stats.Inc(statGarbage)
		f.FailLater(p.e, conn.PeerFailed("it sent a message shorter than the header"))
	default:
		p.outOfOrder = append(p.outOfOrder, *wc)
		f.markReadable(p)
		if p.e.M.TxPending() == p.id {
			p.e.step(machine.Event{Kind: machine.EventDataReceived, Pair: p.id})
		}
	}
}

// markReadable schedules the delivery of the messages in connQP.outOfOrder, if p is read.
func (f *iface) markReadable(p *connQP) {
	if p.reading {
		f.readable = append(f.readable, p)
		f.serviceNeeded = true
	}
}

// deliverOutOfOrder delivers the messages that arrived on QPs before these were read.
func (f *iface) deliverOutOfOrder() (n int) {
	for len(f.readable) > 0 {
		p := f.readable[0]
		f.readable = f.readable[1:]
		if p.closed || len(p.outOfOrder) == 0 {
			continue
		}
		es := p.outOfOrder
		p.outOfOrder = nil
		p.updateFastRecv()
		f.postedRecvs += len(es) // iface.processRecvs subtracts them once more
		for len(es) > 0 && !p.closed {
			k := min(len(es), len(f.recvWCs))
			if !p.fastRecv { // one of the messages was a marker
				p.outOfOrder = append(p.outOfOrder, es...)
				f.postedRecvs -= len(es)
				break
			}
			n += f.processRecvs(es[:k])
			es = es[k:]
		}
	}
	return n
}

// updateFastRecv updates connQP.fastRecv.
func (p *connQP) updateFastRecv() {
	p.fastRecv = p.reading && len(p.outOfOrder) == 0 && p.e.M.TxPending() != p.id && p.retiredAt == 0
}

// drainRecvCQ drains the receive completion queue into iface.drained.
func (f *iface) drainRecvCQ() {
	var wcs [16]verbs.WC
	for {
		k := f.recvCQ.Poll(wcs[:])
		if k <= 0 {
			return
		}
		f.drained = append(f.drained, wcs[:k]...)
	}
}

// takeDrained removes completions from iface.drained.
func (f *iface) takeDrained(wcs []verbs.WC) int {
	k := copy(wcs, f.drained[f.drainedAt:])
	f.drainedAt += k
	if f.drainedAt == len(f.drained) {
		f.drained, f.drainedAt = f.drained[:0], 0
	}
	return k
}

// processDrained processes all completions in iface.drained.
func (f *iface) processDrained() (n int) {
	for f.drainedAt < len(f.drained) {
		n += f.processRecvs(f.recvWCs[:f.takeDrained(f.recvWCs[:])])
	}
	return n
}
