package rc

import (
	"fmt"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// Two kinds of received messages wait before they are delivered.
//
// Messages on a QP that this side does not read yet are out of order: the switch-over marker on the
// previous QP is still to come. connQP.outOfOrder keeps their completions.
//
// Drained completions are those in iface.drained. Destroying a QP discards its completions in the
// device's queue, and with them the buffers and messages of that QP. So the queue is first drained
// into iface.drained, for all QPs.
//
// Invariant: while iface.drained has completions, they are processed before those in the device's
// queue, so that the messages of each QP keep their order. A buffer is in exactly one place: posted,
// in one of the two lists, retained by the layer above, or free.

// recvSlow processes a receive completion that is not a valid message on a QP with connQP.fastRecv set.
//
//go:noinline
func (f *iface) recvSlow(p *connQP, wc *verbs.WC) {
	buf := uint32(wc.ID)
	f.postedRecvs--
	switch {
	case p == nil || wc.Status != verbs.WCSuccess || p.life >= qpDraining:
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
	if p.life == qpReading {
		f.readable = append(f.readable, p)
		f.serviceNeeded = true
	}
}

// deliverOutOfOrder delivers the messages that arrived on QPs before these were read.
func (f *iface) deliverOutOfOrder() (n int) {
	for len(f.readable) > 0 {
		p := f.readable[0]
		f.readable = f.readable[1:]
		if p.life == qpClosed || len(p.outOfOrder) == 0 {
			continue
		}
		es := p.outOfOrder
		p.outOfOrder = nil
		p.updateFastRecv()
		f.postedRecvs += len(es) // iface.processRecvs subtracts them once more
		for len(es) > 0 && p.life != qpClosed {
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
	p.fastRecv = p.life == qpReading && len(p.outOfOrder) == 0 && p.e.M.TxPending() != p.id
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

// prefill maps the buffers and posts the receives. The first QP causes it: an interface without
// connections has none.
func (f *iface) prefill() (err error) {
	if f.reserve != nil {
		return nil
	}
	if f.rx.Mem() == nil {
		if f.rx, err = nic.NewSlab(f.pd, f.recvTarget+f.maxRetained, f.seg); err != nil {
			f.rx = new(nic.Slab)
			return err
		}
	}
	if f.tx.Mem() == nil {
		if f.tx, err = nic.NewSlab(f.pd, f.txTotal, max(f.seg, headerLen+maxHeader)); err != nil {
			f.tx = new(nic.Slab)
			return err
		}
	}
	for f.postedRecvs < f.recvTarget {
		if !f.postRecvs() {
			return fmt.Errorf("post %d receives: %w", f.recvTarget, ucs.ErrNoResource)
		}
	}
	r, err := f.d.NewReserve(f.srq, f.rx, f.seg, f.recvTarget/4)
	if err != nil {
		return err
	}
	f.reserve = r
	if err := f.d.Watch(&f.watcher); err != nil {
		return err
	}
	f.reserve.Balance(f.refillSize)
	f.ud.prefill(udRecvs)
	return nil
}
