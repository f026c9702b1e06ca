package rc

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

const (
	// endBatch is the maximum number of send completions polled at a time.
	endBatch = 32
	// refillBatch is the maximum number of receives posted at a time.
	refillBatch = 32
	// servicePasses is the number of passes between two checks for what causes no completion on
	// the fast path: deadlines, errors and connection messages. A power of two.
	servicePasses = 256
)

// Progress delivers received messages, and then processes the completions of signaled sends.
//
// hot: BenchmarkProgressIdle.
func (f *iface) Progress(budget int) int {
	if f.closed || !f.enter() {
		return 0
	}
	if f.armed { // a program that sleeps makes few passes: this one checks everything
		f.disarm()
		f.passes |= servicePasses - 1
	}
	f.busy++
	f.told = 0
	n := f.receive(budget)
	if f.listed != 0 { // post the replies at once
		f.flushList()
	}
	if f.signaled != 0 {
		f.completions(budget)
	}
	f.passes++
	if f.attention || len(f.waiting) != 0 || f.passes&(servicePasses-1) == 0 {
		n += f.slowPass()
	}
	if f.events != 0 {
		f.handEvents()
	}
	if f.listed != 0 {
		f.flushList()
	}
	n += f.told
	f.busy--
	f.leave()
	return n
}

// slowPass does the work that is not needed in each pass.
//
//go:noinline
func (f *iface) slowPass() (n int) {
	if f.passes&(servicePasses-1) == 0 || len(f.timed) != 0 {
		f.ud.hear(udRecvs) // the worker's queues are not armed: they have no event
	}
	if len(f.waiting) != 0 {
		n = f.offerAll()
	}
	if f.passes&(servicePasses-1) == 0 {
		f.completions(uct.MaxBatch) // operations that fail complete with an error even if unsignaled
		f.tend()
	}
	if f.attention {
		n += f.service()
	}
	return n
}

// receive delivers up to budget messages as one batch.
func (f *iface) receive(budget int) int {
	wcs := f.recvs[:min(budget, len(f.recvs))]
	var k int
	if f.stashAt < len(f.stash) {
		k = f.unstash(wcs)
	} else if k = f.recvCQ.Poll(wcs); k <= 0 {
		return 0
	}
	return f.arrived(wcs[:k])
}

// arrived delivers the messages among the receive completions wcs.
//
// hot: BenchmarkProgressAM.
func (f *iface) arrived(wcs []verbs.WC) int {
	n := 0
	for i := range wcs {
		wc := &wcs[i]
		p := f.last
		if p == nil || p.mine.qpn != wc.QPN {
			p = f.qpns.find(wc.QPN)
			f.last = p
		}
		if p == nil || !p.plain || wc.Status != verbs.WCSuccess || wc.Len < headLen {
			f.odd(p, wc)
			continue
		}
		f.posted--
		if f.describe(&f.ds[n], p, wc) {
			n++
		}
	}
	if n != 0 {
		f.deliver(n)
	}
	f.replenish()
	return n
}

// describe fills the descriptor d from a received message. It returns false for a control
// message, which it processes itself.
func (f *iface) describe(d *uct.Desc, p *pair, wc *verbs.WC) bool {
	buf := uint32(wc.ID)
	at := f.rx.Offset(buf)
	b := f.rx.Mem()[at:][:headLen]
	id := binary.LittleEndian.Uint64(b[offID:])
	hdr := binary.LittleEndian.Uint64(b)
	if id >= uct.NumAMIDs {
		f.rx.Give(buf)
		p.e.control(p, id, hdr)
		return false
	}
	e := p.e
	e.got++
	d.Off, d.Len, d.Header, d.Handle = uint32(at+headLen), wc.Len-headLen, hdr, uint64(buf)
	d.RxConn, d.ID, d.Flags = e.source, uct.AMID(id), 0
	return true
}

// deliver passes the first n descriptors to the handler, and frees the buffers that it does not
// retain.
func (f *iface) deliver(n int) {
	ds := f.ds[:n]
	may := min(n, f.keepMost-f.kept)
	for i := range ds[:may] {
		ds[i].Flags = uct.DescCanRetain
	}
	kept := f.handler.HandleAM(f.rx.Mem(), ds) & (1<<may - 1)
	for i := range ds {
		if kept>>i&1 != 0 {
			f.kept++
			continue
		}
		f.rx.Give(uint32(ds[i].Handle))
	}
}

// Release frees buffers that the layer above has retained.
func (f *iface) Release(handles []uint64) {
	f.enterWait()
	defer f.leave()
	if f.closed {
		return
	}
	for _, h := range handles {
		f.kept--
		f.rx.Give(uint32(h))
	}
	f.replenish()
}

// replenish posts receives if a batch or more is missing. It keeps a few batches of free
// buffers; the rest is left to the reserve.
func (f *iface) replenish() {
	if f.reserve == nil {
		return
	}
	if n := f.rx.Free(); f.reserve.Touched() || n > 4*f.batch || n < f.batch && f.posted <= f.target-f.batch {
		f.posted += f.reserve.Balance(2 * f.batch)
	}
	for f.posted <= f.target-f.batch && f.post() {
	}
}

// post posts a batch of receives. It returns false if there is no buffer, or no room.
func (f *iface) post() bool {
	n := 0
	for n < min(f.batch, f.target-f.posted) {
		i, ok := f.rx.Take()
		if !ok {
			break
		}
		w := &f.refill[n]
		w.ID, w.NumSG, w.SG[0] = uint64(i), 1, f.rx.Piece(i, f.seg)
		n++
	}
	k, _ := f.srq.PostRecv(f.refill[:n])
	f.posted += k
	for i := k; i < n; i++ {
		f.rx.Give(uint32(f.refill[i].ID))
	}
	return k > 0
}

// completions processes up to budget send completions.
func (f *iface) completions(budget int) {
	wcs := f.ends[:min(budget, len(f.ends))]
	k := copy(wcs, f.sendStash)
	if k > 0 {
		f.sendStash = f.sendStash[:copy(f.sendStash, f.sendStash[k:])]
	} else {
		k = f.sendCQ.Poll(wcs)
	}
	for i := range max(k, 0) {
		f.completed(&wcs[i])
	}
}

// completed processes a send completion.
func (f *iface) completed(wc *verbs.WC) {
	p := f.qpns.find(wc.QPN)
	switch {
	case p == nil: // the QP was destroyed in the meantime
	case wc.Status != verbs.WCSuccess:
		p.broken(wc)
	default:
		p.q.signals--
		f.signaled--
		p.q.ended(uint32(wc.ID), ucs.OK)
	}
}

// tell queues an event for the handler.
func (f *iface) tell(ev uct.Event) {
	if f.closed {
		return
	}
	if f.events == len(f.evs) {
		f.handEvents()
	}
	f.evs[f.events] = ev
	f.events++
	f.told++
}

// handEvents passes the queued events to the handler.
func (f *iface) handEvents() {
	n := f.events
	f.events = 0
	f.handler.HandleEvents(f.evs[:n])
}
