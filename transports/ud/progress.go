package ud

import (
	"math"
	"math/bits"

	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// clockPasses is the number of passes between two readings of the clock, a power of two.
const clockPasses = 16

// descRxEnd marks the end of flow RxConn in a queued Desc. Header is the reason.
const descRxEnd uct.DescFlags = 1 << 7

// Bits of arq.Receiver.Tag.
const (
	ackListed  uint32 = 1 << iota // in iface.pendingACKs or iface.agedACKs
	ackUrgent                     // in iface.urgentACKs
	reported                      // counted in iface.rxConns
	recvActive                    // a packet was received since the last sweep
	halfOpen                      // in iface.halfOpen: no packet confirms that the sender has received Accept
)

// Progress receives packets, passes messages to the handler, and runs expired timers.
//
//hot:bench BenchmarkAM BenchmarkProgressIdle
func (f *iface) Progress(budget int) int {
	if f.state == ifaceClosed || !f.Enter() {
		return 0
	}
	f.ProgressDepth++
	n := 0
	if f.delivered < len(f.descs) {
		n = f.deliverDescs(budget)
	}
	if n < budget {
		if k := f.recvCQ.Poll(f.recvWCs[:min(budget-n, pollBatch)]); k > 0 {
			f.processRecvs(f.recvWCs[:k])
			n += f.deliverDescs(budget - n)
			if len(f.urgentACKs) > 0 {
				f.flushUrgentACKs()
			}
			if len(f.freeRecvs) >= refillBatch {
				f.repost()
			}
			if f.armed { // Without an event, only the alarm starts a section.
				f.disarm()
				f.SetAlarm(ucs.Now().Add(pollTimeout))
			}
		}
	}
	f.passes++
	if f.passes&(clockPasses-1) == 0 || f.restNeeded {
		n += f.progressSlow()
	}
	f.batching = false
	if f.numWRs > 0 {
		f.flushPosts()
		f.batching = false
	}
	f.ProgressDepth--
	f.Leave()
	return n
}

// progressSlow does the work that not every pass needs. It returns the number of events, failures
// and retried pending operations.
//
//go:noinline
func (f *iface) progressSlow() (n int) {
	f.restNeeded = f.delivered < len(f.descs)
	if f.state == ifaceSleeping {
		f.endSleep()
	}
	if len(f.freeRecvs) >= refillBatch { // the handler released retained buffers
		f.repost()
	}

	if f.passes&(clockPasses-1) == 0 { // read the clock: ACKs, timers, the sweep
		now := ucs.Now()
		late := now.Sub(f.now) > f.conf.MinRTO/2
		f.now, f.peerSearches = now, 0
		f.updateRecvWindow()
		f.flushUrgentACKs()
		f.flushAgedACKs()
		if f.signaled != f.signaledDone {
			f.pollSendCQ()
		}
		switch {
		case f.state == ifaceClosed:
		case late: // Progress was not called for a while. Packets that arrived in time are received first.
			f.nextDeadline = max(f.nextDeadline, now.Add(f.conf.MinRTO/2))
		case now >= f.nextDeadline:
			f.expireTimers()
		}
		if now.Sub(f.sweptAt) > f.sweepEvery {
			f.sweep(now)
		}
		f.checkPeers(now)
		f.handleDeviceFailure()
		f.PollAlarm(now)
		f.SetAlarm(now.Add(pollTimeout)) // in case the program stops polling
	}

	n += f.deliverEvents()
	for len(f.failures) > 0 {
		e := f.failures[0]
		f.failures = append(f.failures[:0], f.failures[1:]...)
		f.handler.HandleFailure(uct.Failure{Endpoint: e, Err: e.err, Acked: e.err == nil && !e.lostOps})
		n++
	}
	if len(f.waiting) > 0 {
		f.pollSendCQ()
		for _, e := range f.waiting {
			n += e.dispatchPending(math.MaxInt)
		}
		f.trimWaiting()
		f.restNeeded = f.restNeeded || len(f.waiting) > 0
	}
	return n
}

// processRecvs processes received packets. It queues the messages among them in iface.descs, with
// the messages that were out of order before.
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

		// A Data or End packet. It may carry an ACK of a flow in the other direction.
		if h.AckOf() != 0 {
			f.handleACK(&h, nil, w.SrcQP)
		}
		r := f.mux.Receiver(h.To())
		if r == nil || f.peers[r.Peer].addr.QPN != w.SrcQP {
			f.replyReset(&h, w.SrcQP)
			f.freeRecvs = append(f.freeRecvs, slot)
			continue
		}
		switch r.Arrive(h.Seq(), slot, h.AckReq(), f.spareRecvs() > 0, f.now) {
		case arq.Deliver:
			f.deliver(r, &h, slot, len(b))
			if r.Held() != 0 {
				f.deliverHeld(r)
			}
		case arq.Hold:
			f.stats.Inc(statOutOfOrder)
			f.heldBufs++
			f.heldLens[slot] = uint16(len(b))
		case arq.Duplicate:
			f.stats.Inc(statDuplicates)
			f.freeRecvs = append(f.freeRecvs, slot)
		case arq.OutOfWindow:
			f.stats.Inc(statOutOfWindow)
			f.freeRecvs = append(f.freeRecvs, slot)
		}
		f.scheduleACK(r)
	}
}

// dropInvalid counts an invalid packet and frees its receive buffer.
//
//go:noinline
func (f *iface) dropInvalid(slot uint32) {
	f.stats.Inc(statInvalid)
	f.freeRecvs = append(f.freeRecvs, slot)
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
		f.receiveEnd(r, h)
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

// deliverDescs passes about budget messages of the queue to the handler. It returns the number of
// messages and events. The end of a flow is reported in its place in the queue.
func (f *iface) deliverDescs(budget int) (n int) {
	for f.delivered < len(f.descs) && n < budget {
		ds := f.descs[f.delivered:]
		ds = ds[:min(len(ds), budget-n, uct.MaxBatch)]
		k, canRetain := 0, f.maxRetained-f.retained
		for k < len(ds) && ds[k].Flags&descRxEnd == 0 {
			if k < canRetain {
				ds[k].Flags = uct.DescCanRetain
			}
			k++
		}
		if k == 0 {
			f.delivered++
			n += f.reportRxEnd(&ds[0])
			continue
		}
		ds = ds[:k]
		n += k
		f.delivered += k
		kept := f.handler.HandleAM(f.rx.Mem(), ds)
		if f.state == ifaceClosed {
			return n
		}
		for i := range ds {
			if kept>>i&1 == 0 || ds[i].Flags&uct.DescCanRetain == 0 {
				f.freeRecvs = append(f.freeRecvs, uint32(ds[i].Handle))
			}
		}
		f.retained += bits.OnesCount64(kept)
	}
	if f.delivered == len(f.descs) {
		f.descs, f.delivered = f.descs[:0], 0
	}
	f.restNeeded = f.restNeeded || f.delivered < len(f.descs)
	return n
}

// deliverEvents passes the queued events to the handler and returns their number.
func (f *iface) deliverEvents() (n int) {
	for len(f.events) > 0 {
		es := f.events[:min(len(f.events), pollBatch)]
		n += len(es)
		f.handler.HandleEvents(es)
		f.events = append(f.events[:0], f.events[len(es):]...)
	}
	return n
}
