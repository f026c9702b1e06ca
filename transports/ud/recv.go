package ud

import (
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// descRxEnd marks the end of flow Source in a queued Desc. Header is the reason.
const descRxEnd uct.DescFlags = 1 << 7

// Bits of arq.Receiver.Tag.
const (
	ackListed  uint32 = 1 << iota // in iface.pendingACKs or iface.agedACKs
	ackUrgent                     // in iface.urgentACKs
	reported                      // counted in iface.rxConns
	recvActive                    // a packet was received since the last sweep
	halfOpen                      // in iface.halfOpen: no packet confirms that the sender has received Accept
)

// processRecvs processes received packets.
//
//hot:bench BenchmarkAM
func (f *iface) processRecvs(wcs []verbs.WC) {
	for i := range wcs {
		w := &wcs[i]
		slot := uint32(w.ID)
		b := f.rx.Bytes(slot)
		if w.Status != verbs.WCSuccess || w.Len < grhLen || int(w.Len) > len(b) {
			f.dropInvalid(slot)
			continue
		}
		b = b[grhLen:w.Len]
		h, ok := arq.Parse(b)
		if !ok {
			f.dropInvalid(slot)
			continue
		}
		if h.Kind() == arq.Control {
			f.handleControl(&h, b[arq.HeaderLen:], w)
			f.freeRecvs = append(f.freeRecvs, slot)
			continue
		}
		if h.AckOf() != 0 {
			f.handleACK(&h, nil, w.SrcQP)
		}
		r := f.mux.Receiver(h.To())
		if r == nil || f.peers[r.Peer].addr.qpn != w.SrcQP {
			f.replyReset(&h, w.SrcQP)
			f.freeRecvs = append(f.freeRecvs, slot)
			continue
		}
		f.handleNumbered(r, &h, slot, len(b))
	}
}

// dropInvalid counts an invalid packet and frees its receive buffer.
//
//go:noinline
func (f *iface) dropInvalid(slot uint32) {
	f.stats.Inc(statInvalid)
	f.freeRecvs = append(f.freeRecvs, slot)
}

// handleNumbered processes a Data or End packet of n bytes.
//
//hot:bench BenchmarkAM
func (f *iface) handleNumbered(r *arq.Receiver, h *arq.Header, slot uint32, n int) {
	switch r.Arrive(h.Seq(), slot, h.AckReq(), f.spareRecvs() > 0, f.now) {
	case arq.Deliver:
		f.deliver(r, h, slot, n)
		if r.Held() != 0 {
			f.deliverHeld(r)
		}
	case arq.Hold:
		f.stats.Inc(statOutOfOrder)
		f.heldBufs++
		f.heldLens[slot] = uint16(n)
	case arq.Duplicate:
		f.stats.Inc(statDuplicates)
		f.freeRecvs = append(f.freeRecvs, slot)
	case arq.OutOfWindow:
		f.stats.Inc(statOutOfWindow)
		f.freeRecvs = append(f.freeRecvs, slot)
	}
	f.scheduleACK(r)
}

// spareRecvs returns how many more receive buffers may be held. A quarter of all is kept for
// the device.
func (f *iface) spareRecvs() int {
	return len(f.heldLens)*3/4 - f.retained - f.heldBufs - (len(f.descs) - f.delivered)
}

// deliver appends the next packet of a flow to the queue.
//
//hot:bench BenchmarkAM
func (f *iface) deliver(r *arq.Receiver, h *arq.Header, slot uint32, n int) {
	if r.Tag&(reported|recvActive) != reported|recvActive {
		f.noteRecv(r, h)
	}
	if h.Kind() == arq.End {
		f.freeRecvs = append(f.freeRecvs, slot)
		var e *endpoint
		if h.ID() == arq.EndAll {
			e = f.failClosedByPeer(f.peers[r.Peer])
		}
		f.queueRxEnd(r, endInOrder, e)
		r.End()
		return
	}
	f.descs = append(f.descs, uct.Desc{
		Off: uint32(f.rx.Offset(slot) + grhLen + arq.HeaderLen), Len: uint32(n - arq.HeaderLen), Header: h.C,
		Handle: uint64(slot), RxConn: uint32(r.Local), ID: uct.AMID(h.ID()),
	})
}

// noteRecv updates the counters and the half-open state of a flow that delivers a packet.
//
//go:noinline
func (f *iface) noteRecv(r *arq.Receiver, h *arq.Header) {
	f.confirm(r)
	if r.Tag&recvActive == 0 {
		r.Tag |= recvActive
		f.activeRx++
		f.updateRecvWindow()
	}
	if r.Tag&reported == 0 && h.Kind() == arq.Data {
		r.Tag |= reported
		f.rxConns.Add(1)
	}
}

// deliverHeld delivers the out-of-order packets that follow a delivered one.
//
//go:noinline
func (f *iface) deliverHeld(r *arq.Receiver) {
	for slot, ok := r.Pop(); ok; slot, ok = r.Pop() {
		f.heldBufs--
		n := int(f.heldLens[slot])
		h, _ := arq.Parse(f.rx.Bytes(slot)[grhLen:][:n]) // Parse succeeded when it arrived
		f.deliver(r, &h, slot, n)
	}
}

// removeReceiver removes a received flow and frees its out-of-order packets.
func (f *iface) removeReceiver(r *arq.Receiver) {
	f.confirm(r)
	held := r.Held()
	f.freeRecvs = r.Drop(f.freeRecvs)
	f.heldBufs -= held
	f.mux.RemoveReceiver(r.Local)
	p := f.peers[r.Peer]
	if p.pendingACK == r {
		p.pendingACK = nil
	}
	p.numRx--
	f.removeUnusedPeer(p)
}
