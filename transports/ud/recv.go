package ud

import (
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// markEnd in a queued Desc: the flow Source ended here, and Header says why.
const markEnd uct.DescFlags = 1 << 7

// Bits of a Receiver's Tag.
const (
	listed   uint32 = 1 << iota // in iface.owing or older
	hurried                     // in iface.urgent
	counted                     // among iface.came
	lively                      // got something since the last sweep
	halfOpen                    // among iface.halfOpen: nothing has come by it yet
)

// arrived takes packets in.
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

//go:noinline
func (f *iface) garbage(slot uint32) {
	f.stats.Inc(statGarbage)
	f.free = append(f.free, slot)
}

// numbered takes a numbered packet of n bytes in.
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

// spare is how many receive buffers may still be held back, of all but a quarter.
func (f *iface) spare() int {
	return len(f.lens)*3/4 - f.kept - f.holding - (len(f.queue) - f.handed)
}

// deliver puts the next packet of a flow into the queue.
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
		Handle: uint64(slot), Source: uint32(r.Own), ID: uct.AMID(h.ID()),
	})
}

// begin counts a flow by which something comes.
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

// follow delivers what was held behind a packet that has come.
//
//go:noinline
func (f *iface) follow(r *arq.Receiver) {
	for slot, ok := r.Pop(); ok; slot, ok = r.Pop() {
		f.holding--
		n := int(f.lens[slot])
		h, _ := arq.Parse(f.rx.Bytes(slot)[grhLen:][:n]) // it was one when it came
		f.deliver(r, &h, slot, n)
	}
}

// forgetReceiver ends a flow that is received.
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
