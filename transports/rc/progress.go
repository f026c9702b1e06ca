package rc

import (
	"encoding/binary"
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

const (
	// sendPollBatch is the maximum number of send completions polled at a time.
	sendPollBatch = 32
	// refillBatch is the maximum number of receives posted at a time.
	refillBatch = 32
	// servicePasses is the number of passes between two checks for what causes no completion on
	// the fast path: deadlines, errors and connection messages. A power of two.
	servicePasses = 256
)

// Progress delivers received messages, and then processes the completions of signaled sends.
//
//hot:bench BenchmarkProgressIdle
func (f *iface) Progress(budget int) int {
	if f.closed || !f.Enter() {
		return 0
	}
	if f.armed { // a program that sleeps makes few passes: this one checks everything
		f.disarm()
		f.passes |= servicePasses - 1
	}
	f.ProgressDepth++
	f.reports = 0
	n := f.receive(budget)
	if f.postListLen != 0 { // post the replies at once
		f.flushPostList()
	}
	if f.signaled != 0 {
		f.pollSendCQ(budget)
	}
	f.passes++
	if f.serviceNeeded || len(f.waiting) != 0 || f.passes&(servicePasses-1) == 0 {
		n += f.slowPass()
	}
	if f.queuedEvents != 0 {
		f.deliverEvents()
	}
	if f.postListLen != 0 {
		f.flushPostList()
	}
	n += f.reports
	f.ProgressDepth--
	f.Leave()
	return n
}

// slowPass does the work that is not needed in each pass.
//
//go:noinline
func (f *iface) slowPass() (n int) {
	if f.passes&(servicePasses-1) == 0 || f.timers.Len() != 0 {
		f.ud.poll(udRecvs) // the worker's queues are not armed: they have no event
	}
	if len(f.waiting) != 0 {
		n = f.dispatchPending()
	}
	if f.passes&(servicePasses-1) == 0 {
		f.pollSendCQ(uct.MaxBatch) // operations that fail complete with an error even if unsignaled
		f.serviceTimers()
	}
	if f.serviceNeeded {
		f.serviceNeeded = false
		n += f.deliverOutOfOrder() + f.Service(f.serviceEP)
	}
	return n
}

// receive delivers up to budget messages as one batch.
func (f *iface) receive(budget int) int {
	wcs := f.recvWCs[:min(budget, len(f.recvWCs))]
	var k int
	if f.drainedAt < len(f.drained) {
		k = f.takeDrained(wcs)
	} else if k = f.recvCQ.Poll(wcs); k <= 0 {
		return 0
	}
	return f.processRecvs(wcs[:k])
}

// processRecvs delivers the messages among the receive completions wcs.
//
//hot:bench BenchmarkProgressAM
func (f *iface) processRecvs(wcs []verbs.WC) int {
	n := 0
	for i := range wcs {
		wc := &wcs[i]
		p := f.lastRecvQP
		if p == nil || p.local.qpn != wc.QPN {
			p = f.qpns.find(wc.QPN)
			f.lastRecvQP = p
		}
		if p == nil || !p.fastRecv || wc.Status != verbs.WCSuccess || wc.Len < headerLen {
			f.recvSlow(p, wc)
			continue
		}
		f.postedRecvs--
		if f.fillDesc(&f.descs[n], p, wc) {
			n++
		}
	}
	if n != 0 {
		f.deliver(n)
	}
	f.replenish()
	return n
}

// fillDesc fills the descriptor d from a received message. It returns false for a control
// message, which it processes itself.
func (f *iface) fillDesc(d *uct.Desc, p *connQP, wc *verbs.WC) bool {
	buf := uint32(wc.ID)
	at := f.rx.Offset(buf)
	b := f.rx.Mem()[at:][:headerLen]
	id := binary.LittleEndian.Uint64(b[offID:])
	hdr := binary.LittleEndian.Uint64(b)
	if id >= uct.NumAMIDs {
		f.rx.Put(buf)
		p.e.handleControl(p, id, hdr)
		return false
	}
	e := p.e
	e.received++
	d.Off, d.Len, d.Header, d.Handle = uint32(at+headerLen), wc.Len-headerLen, hdr, uint64(buf)
	d.RxConn, d.ID, d.Flags = e.Source, uct.AMID(id), 0
	return true
}

// deliver passes the first n descriptors to the handler, and frees the buffers that it does not
// retain.
func (f *iface) deliver(n int) {
	ds := f.descs[:n]
	canRetain := min(n, f.maxRetained-f.retained)
	for i := range ds[:canRetain] {
		ds[i].Flags = uct.DescCanRetain
	}
	kept := f.handler.HandleAM(f.rx.Mem(), ds) & (1<<canRetain - 1)
	for i := range ds {
		if kept>>i&1 != 0 {
			f.retained++
			continue
		}
		f.rx.Put(uint32(ds[i].Handle))
	}
}

// Release frees buffers that the layer above has retained.
func (f *iface) Release(handles []uint64) {
	f.EnterWait()
	defer f.Leave()
	if f.closed {
		return
	}
	for _, h := range handles {
		f.retained--
		f.rx.Put(uint32(h))
	}
	f.replenish()
}

// replenish posts receives if a batch or more is missing. It keeps a few batches of free
// buffers; the rest is left to the reserve.
func (f *iface) replenish() {
	if f.reserve == nil {
		return
	}
	if n := f.rx.Free(); f.reserve.Touched() || n > 4*f.refillSize || n < f.refillSize && f.postedRecvs <= f.recvTarget-f.refillSize {
		f.postedRecvs += f.reserve.Balance(2 * f.refillSize)
	}
	for f.postedRecvs <= f.recvTarget-f.refillSize && f.postRecvs() {
	}
}

// postRecvs posts a batch of receives. It returns false if there is no buffer, or no room.
func (f *iface) postRecvs() bool {
	n := 0
	for n < min(f.refillSize, f.recvTarget-f.postedRecvs) {
		i, ok := f.rx.Take()
		if !ok {
			break
		}
		w := &f.refillWRs[n]
		w.ID, w.NumSG, w.SG[0] = uint64(i), 1, f.rx.SGE(i, f.seg)
		n++
	}
	k, _ := f.srq.PostRecv(f.refillWRs[:n])
	f.postedRecvs += k
	for i := k; i < n; i++ {
		f.rx.Put(uint32(f.refillWRs[i].ID))
	}
	return k > 0
}

// pollSendCQ processes up to budget send completions.
func (f *iface) pollSendCQ(budget int) {
	wcs := f.sendWCs[:min(budget, len(f.sendWCs))]
	k := copy(wcs, f.drainedSends)
	if k > 0 {
		f.drainedSends = f.drainedSends[:copy(f.drainedSends, f.drainedSends[k:])]
	} else {
		k = f.sendCQ.Poll(wcs)
	}
	for i := range max(k, 0) {
		wc := &wcs[i]
		p := f.qpns.find(wc.QPN)
		switch {
		case p == nil: // the QP was destroyed in the meantime
		case wc.Status != verbs.WCSuccess:
			p.sendFailed(wc)
		default:
			p.q.signaled--
			f.signaled--
			p.q.completeTo(uint32(wc.ID), ucs.OK)
		}
	}
}

// queueEvent queues an event for the handler.
func (f *iface) queueEvent(ev uct.Event) {
	if f.closed {
		return
	}
	if f.queuedEvents == len(f.eventBuf) {
		f.deliverEvents()
	}
	f.eventBuf[f.queuedEvents] = ev
	f.queuedEvents++
	f.reports++
}

// deliverEvents passes the queued events to the handler.
func (f *iface) deliverEvents() {
	n := f.queuedEvents
	f.queuedEvents = 0
	f.handler.HandleEvents(f.eventBuf[:n])
}

// Cookies identify the completion queues in events.
const (
	cookieRecv = iota
	cookieSend
	cookieConnMsgs
)

// EventFD returns a descriptor that is readable when an armed completion queue has an event.
func (f *iface) EventFD() int { return f.wake.FD() }

// disarm consumes the events of the last Arm.
func (f *iface) disarm() {
	f.armed = false
	f.wake.Lower()
	f.drainEvents()
}

// drainEvents consumes all events of the completion channel. It reports whether one of them is
// for the worker, and so not from the queue of connection messages.
func (f *iface) drainEvents() (workerEvent bool) {
	f.ud.armed = false
	for {
		c, ok := f.channel.TryEvent()
		if !ok {
			return workerEvent
		}
		workerEvent = workerEvent || c != cookieConnMsgs
	}
}

// Arm arms the descriptor for the next completion. Completions before that cause no event, so
// Arm polls the queues after arming them and returns Busy if they had any.
func (f *iface) Arm(k uct.EventKind) uct.Status {
	if f.closed {
		return ucs.Closed
	}
	if !f.Enter() {
		return ucs.Busy
	}
	defer f.Leave()
	if f.serviceNeeded || f.drainedAt < len(f.drained) || len(f.drainedSends) > 0 {
		return ucs.Busy
	}
	for _, e := range f.waiting {
		if e.hasRoom() {
			return ucs.Busy
		}
	}
	f.disarm()
	if n, _ := f.ud.poll(udRecvs); n > 0 {
		return ucs.Busy
	}
	if st := f.recvCQ.Arm(false); st != ucs.OK {
		return st
	}
	f.armed = true
	if k&uct.EventSend != 0 {
		if st := f.sendCQ.Arm(false); st != ucs.OK {
			return st
		}
		wcs := slices.Grow(f.drainedSends, sendPollBatch)[:sendPollBatch]
		f.drainedSends = wcs[:max(0, f.sendCQ.Poll(wcs))]
	}
	f.drainRecvCQ()
	if len(f.drained) > 0 || len(f.drainedSends) > 0 {
		return ucs.Busy
	}
	f.d.NotifyIdle()
	if f.timers.Len() > 0 || len(f.awaiting) > 0 {
		return ucs.InProgress
	}
	return ucs.OK
}
