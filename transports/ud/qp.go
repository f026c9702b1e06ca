package ud

import (
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

const (
	// sendDepth is the depth of the send queue, postBatch the number of work requests posted
	// as one list. One of signalEvery inline work requests is signaled.
	sendDepth   = 512
	postBatch   = 16
	signalEvery = 32
)

// queuePair holds the interface's queue pair, its CQs and the work requests to be posted.
//
// Invariant: a slot is not reused while a work request that reads it has not completed.
// Inline work requests read no slot, since the packet is copied into them. The others are
// signaled, and slotSlab.lastWR is the last that reads a slot. An acknowledged slot whose lastWR is
// after completedID waits in iface.deferredSlots.
type queuePair struct {
	qp     verbs.QP
	sendCQ verbs.CQ
	// postedID is the number of work requests, which is the ID of the last. completedID is the
	// last one that is known to have completed. signaled were signaled, and signaledDone of
	// those have a completion.
	postedID, completedID  uint64
	signaled, signaledDone uint64
	maxInline              int  // longest packet that is sent inline
	batching               bool // something was posted since the last pass: further work requests are batched
	numWRs                 int
	wrs                    [postBatch]verbs.SendWR
	refillWRs              [refillBatch]verbs.RecvWR
	sendWCs                [signalEvery]verbs.WC
}

func (f *iface) openQP(port uint8, receives int, worker uct.UUID) (err error) {
	ctx, parent := f.d.Context(), f.thread.PD
	if f.sendCQ, err = ctx.CreateCQ(verbs.CQConfig{Depth: sendDepth, Domain: parent}); err != nil {
		return err
	}
	if f.recvCQ, err = ctx.CreateCQ(verbs.CQConfig{Depth: receives, Domain: parent, Channel: f.channel}); err != nil {
		return err
	}
	caps := verbs.QPCaps{MaxSend: sendDepth, MaxRecv: receives, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: min(ctx.Attr().MaxInline, verbs.InlineLen)}
	f.qp, err = parent.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: f.sendCQ, RecvCQ: f.recvCQ, Caps: caps, NoClass: true})
	if err != nil {
		return err
	}
	for i := range f.wrs {
		f.wrs[i].Op = verbs.OpSend
	}
	f.maxInline = min(f.qp.Query().Caps.MaxInline, verbs.InlineLen)
	f.self = addressOf(nic.Address{Port: f.self.Port, Worker: worker, QPN: f.qp.QPN()})
	err = f.qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: port, PKeyIndex: f.d.PKeyIndex(port), QKey: f.self.qkey},
		verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrQKey)
	if err == nil {
		err = f.qp.Modify(&verbs.QPAttr{State: verbs.StateRTR}, verbs.AttrState)
	}
	if err == nil {
		err = f.qp.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState|verbs.AttrSQPSN)
	}
	return err
}

// canPost reports whether a work request may be posted.
func (q *queuePair) canPost() bool { return q.postedID-q.completedID < sendDepth-postBatch-signalEvery }

// post appends the packet b in slot to the list of work requests, with peer p as its
// destination. It posts the list if it is full or if nothing was posted since the last pass.
//
//hot:bench BenchmarkAM
func (f *iface) post(p *peer, slot uint32, b []byte) {
	w := &f.wrs[f.numWRs]
	f.numWRs++
	f.postedID++
	w.ID, w.QPN, w.QKey, w.AH = f.postedID, p.addr.QPN, p.addr.qkey, p.ah
	switch {
	case len(b) <= f.maxInline:
		w.Flags, w.NumSG, w.InlineLen = verbs.SendInline, 0, uint8(len(b))
		copy(w.Inline[:], b)
		if f.postedID%signalEvery == 0 {
			w.Flags |= verbs.SendSignaled
			f.signaled++
		}
	default:
		w.Flags, w.NumSG, w.InlineLen = verbs.SendSignaled, 1, 0
		k, i := f.tx.at(slot)
		w.SG[0], k.lastWR[i] = k.SGE(i, len(b)), f.postedID
		f.signaled++
	}
	if f.numWRs == postBatch || !f.batching {
		f.flushPosts()
	}
}

// flushPosts posts the collected work requests. Packets that the queue pair does not
// accept count as lost.
func (f *iface) flushPosts() {
	f.batching = true
	if f.numWRs == 0 {
		return
	}
	n, _ := f.qp.PostSend(f.wrs[:f.numWRs])
	if n < f.numWRs {
		f.postFailed(n)
	}
	f.numWRs = 0
}

// postFailed counts the work requests from n on, which were not posted.
//
//go:noinline
func (f *iface) postFailed(n int) {
	f.stats.Add(statUnposted, uint64(f.numWRs-n))
	for i := n; i < f.numWRs; i++ {
		if w := &f.wrs[i]; w.Flags&verbs.SendSignaled != 0 {
			f.signaled--
		}
	}
}

// pollSendCQ polls the send CQ, and frees acknowledged slots that the device has read.
func (f *iface) pollSendCQ() {
	for f.signaled != f.signaledDone {
		n := f.sendCQ.Poll(f.sendWCs[:])
		if n <= 0 {
			break
		}
		f.signaledDone += uint64(n)
		f.completedID = f.sendWCs[n-1].ID
		for i := range f.sendWCs[:n] {
			// A failed work request moves the queue pair to SQE. Its packet counts as lost.
			if f.sendWCs[i].Status != verbs.WCSuccess && f.qp.Query().State == verbs.StateSQE {
				_ = f.qp.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState) // on an error the flows time out
			}
		}
	}
	if f.signaled == f.signaledDone {
		f.completedID = f.postedID // all signaled ones have completed; inline ones after them do not use a slot
	}
	i := 0
	for i < len(f.deferredSlots) && f.deferredSlots[i].readBy <= f.completedID {
		f.tx.put(f.deferredSlots[i].slot)
		i++
	}
	if i > 0 {
		f.deferredSlots = append(f.deferredSlots[:0], f.deferredSlots[i:]...)
	}
}

// freeSlot frees an acknowledged slot, or defers that while the device may read it.
func (f *iface) freeSlot(slot uint32) {
	k, i := f.tx.at(slot)
	if by := k.lastWR[i]; by > f.completedID {
		f.deferredSlots = append(f.deferredSlots, deferredSlot{slot, by})
		return
	}
	k.Put(i)
}

// repost posts the free receive buffers.
func (f *iface) repost() {
	for len(f.freeRecvs) > 0 {
		n := min(len(f.freeRecvs), refillBatch)
		left := len(f.freeRecvs) - n
		for i, slot := range f.freeRecvs[left:] {
			w := &f.refillWRs[i]
			w.ID, w.NumSG, w.SG[0] = uint64(slot), 1, f.rx.SGE(slot, grhLen+f.self.Port.MTU.Bytes())
		}
		took, st := f.qp.PostRecv(f.refillWRs[:n])
		if st != ucs.OK {
			f.freeRecvs = append(f.freeRecvs[:left], f.freeRecvs[left+took:]...)
			return
		}
		f.freeRecvs = f.freeRecvs[:left]
	}
}

// sendControl sends a control packet to p. body follows the header. If there are no resources,
// the packet counts as lost.
func (f *iface) sendControl(p *peer, h *arq.Header, body []byte) {
	n := arq.HeaderLen + len(body)
	if !f.canPost() {
		if f.pollSendCQ(); !f.canPost() {
			return // counts as lost
		}
	}
	if n <= f.maxInline {
		var b [verbs.InlineLen]byte
		h.Put(b[:arq.HeaderLen])
		copy(b[arq.HeaderLen:], body)
		f.post(p, arq.NoSlot, b[:n])
		return
	}
	// Only control packets use the last short slots, and none is longer than one.
	k := &f.tx.small
	slot, ok := k.Take()
	if !ok {
		f.flushPosts()
		f.pollSendCQ()
		if slot, ok = k.Take(); !ok {
			return
		}
	}
	b := k.Bytes(slot)[:n]
	h.Put(b[:arq.HeaderLen])
	copy(b[arq.HeaderLen:], body)
	k.lastWR[slot] = 0
	f.post(p, slot, b)
	f.freeSlot(slot)
}
