package ud

import (
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// markEnd marks the end of flow Source in a queued Desc. Header is the reason.
const markEnd uct.DescFlags = 1 << 7

// Bits of arq.Receiver.Tag.
const (
	listed   uint32 = 1 << iota // in iface.owing or iface.older
	hurried                     // in iface.urgent
	counted                     // counted in iface.came
	lively                      // a packet was received since the last sweep
	halfOpen                    // in iface.halfOpen: no packet confirms that the sender has received Accept
)

// arrived processes received packets.
//
// hot: BenchmarkAM.
func (f *iface) arrived(wcs []verbs.WC) {
	for i := range wcs {
		w := &wcs[i]
		slot := uint32(w.ID)
		b := f.rx.Bytes(slot)
		if w.Status != verbs.WCSuccess || w.Len < grhLen || int(w.Len) > len(b) {
			f.garbage(slot)
			continue
		}
		b = b[grhLen:w.Len]
		h, ok := arq.Parse(b)
		if !ok {
			f.garbage(slot)
			continue
		}
		if h.Kind() == arq.Control {
			f.heard(&h, b[arq.HeadLen:], w)
			f.free = append(f.free, slot)
			continue
		}
		if h.AckOf() != 0 {
			f.acked(&h, nil, w.SrcQP)
		}
		r := f.mux.Receiver(h.To())
		if r == nil || f.peers[r.Peer].addr.qpn != w.SrcQP {
			f.unknown(&h, w.SrcQP)
			f.free = append(f.free, slot)
			continue
		}
		f.numbered(r, &h, slot, len(b))
	}
}

// garbage counts an invalid packet and frees its receive buffer.
//
//go:noinline
func (f *iface) garbage(slot uint32) {
	f.stats.Inc(statGarbage)
	f.free = append(f.free, slot)
}

// numbered processes a Data or End packet of n bytes.
//
// hot: BenchmarkAM.
func (f *iface) numbered(r *arq.Receiver, h *arq.Head, slot uint32, n int) {
	switch r.Arrive(h.Seq(), slot, h.Asks(), f.spare() > 0, f.now) {
	case arq.Deliver:
		f.deliver(r, h, slot, n)
		if r.Held() != 0 {
			f.follow(r)
		}
	case arq.Hold:
		f.stats.Inc(statEarly)
		f.holding++
		f.lens[slot] = uint16(n)
	case arq.Duplicate:
		f.stats.Inc(statDuplicates)
		f.free = append(f.free, slot)
	case arq.Beyond:
		f.stats.Inc(statBeyond)
		f.free = append(f.free, slot)
	}
	f.owe(r)
}

// spare returns how many more receive buffers may be held. A quarter of all is kept for
// the device.
func (f *iface) spare() int {
	return len(f.lens)*3/4 - f.kept - f.holding - (len(f.queue) - f.handed)
}

// deliver appends the next packet of a flow to the queue.
//
// hot: BenchmarkAM.
func (f *iface) deliver(r *arq.Receiver, h *arq.Head, slot uint32, n int) {
	if r.Tag&(counted|lively) != counted|lively {
		f.begin(r, h)
	}
	if h.Kind() == arq.End {
		f.free = append(f.free, slot)
		var e *endpoint
		if h.ID() == arq.EndAll {
			e = f.closedBy(f.peers[r.Peer])
		}
		f.queueEnd(r, endInOrder, e)
		r.End()
		return
	}
	f.queue = append(f.queue, uct.Desc{
		Off: uint32(f.rx.Offset(slot) + grhLen + arq.HeadLen), Len: uint32(n - arq.HeadLen), Header: h.C,
		Handle: uint64(slot), RxConn: uint32(r.Own), ID: uct.AMID(h.ID()),
	})
}

// begin updates the counters and the half-open state of a flow that delivers a packet.
//
//go:noinline
func (f *iface) begin(r *arq.Receiver, h *arq.Head) {
	f.confirmed(r)
	if r.Tag&lively == 0 {
		r.Tag |= lively
		f.flowing++
		f.shareOut()
	}
	if r.Tag&counted == 0 && h.Kind() == arq.Data {
		r.Tag |= counted
		f.came.Add(1)
	}
}

// follow delivers the out-of-order packets that follow a delivered one.
//
//go:noinline
func (f *iface) follow(r *arq.Receiver) {
	for slot, ok := r.Pop(); ok; slot, ok = r.Pop() {
		f.holding--
		n := int(f.lens[slot])
		h, _ := arq.Parse(f.rx.Bytes(slot)[grhLen:][:n]) // Parse succeeded when it arrived
		f.deliver(r, &h, slot, n)
	}
}

// forgetReceiver removes a received flow and frees its out-of-order packets.
func (f *iface) forgetReceiver(r *arq.Receiver) {
	f.confirmed(r)
	held := r.Held()
	f.free = r.Drop(f.free)
	f.holding -= held
	f.mux.ForgetReceiver(r.Own)
	p := f.peers[r.Peer]
	if p.owed == r {
		p.owed = nil
	}
	p.ins--
	f.part(p)
}
