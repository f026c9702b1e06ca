package soft

import (
	"encoding/binary"
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// plan is an error that will happen to an endpoint as the requester.
type plan struct {
	name string
	// at is the work request that fails: of all, or with recv or rnr of those that
	// take a receive.
	at   int
	want verbs.WCStatus
	// kills: the peer's queue pair fails too.
	kills bool
	// recv is what the peer's receive ends with, which was spoiled; 0: it was not.
	recv verbs.WCStatus
	// rnr: the peer gives no receive from there on.
	rnr bool
	ops []verbs.Opcode // that it can happen to
	// spoil makes a work request on the endpoint invalid.
	spoil func(e *endpoint, wr *verbs.SendWR)
}

func remoteOps() []verbs.Opcode {
	return []verbs.Opcode{verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead, verbs.OpFetchAdd, verbs.OpCompareSwap}
}

// plans are all kinds of errors.
var plans = append(windowPlans, []plan{
	{name: "remote key", want: verbs.WCRemAccessErr, kills: true, ops: remoteOps(), spoil: func(_ *endpoint, wr *verbs.SendWR) { wr.RKey ^= 1 }},
	{name: "remote range", want: verbs.WCRemAccessErr, kills: true, ops: remoteOps(), spoil: func(e *endpoint, wr *verbs.SendWR) {
		wr.Remote = e.peer.window.mr.Addr() + windowSize
		if wr.Op != verbs.OpCompareSwap && wr.Op != verbs.OpFetchAdd {
			wr.Remote -= 8
		}
	}},
	{name: "remote access", want: verbs.WCRemAccessErr, kills: true, ops: remoteOps(), spoil: func(e *endpoint, wr *verbs.SendWR) {
		wr.Remote, wr.RKey = e.peer.closed.mr.Addr(), e.peer.closed.mr.RKey()
	}},
	{name: "protection domain", want: verbs.WCRemAccessErr, kills: true, ops: remoteOps(), spoil: func(e *endpoint, wr *verbs.SendWR) {
		wr.Remote, wr.RKey = e.peer.alien.mr.Addr(), e.peer.alien.mr.RKey()
	}},
	{name: "local key", want: verbs.WCLocProtErr, ops: []verbs.Opcode{verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpRead, verbs.OpFetchAdd}, spoil: func(_ *endpoint, wr *verbs.SendWR) {
		wr.SG[wr.NumSG-1].LKey ^= 1
	}},
	{name: "local access", want: verbs.WCLocProtErr, ops: []verbs.Opcode{verbs.OpRead, verbs.OpCompareSwap}, spoil: func(e *endpoint, wr *verbs.SendWR) {
		s := &wr.SG[wr.NumSG-1]
		s.Addr, s.LKey = e.fixed.mr.Addr(), e.fixed.mr.LKey()
	}},
	{name: "short receive", want: verbs.WCRemInvReqErr, kills: true, recv: verbs.WCLocLenErr},
	{name: "receive key", want: verbs.WCRemOpErr, kills: true, recv: verbs.WCLocProtErr},
	{name: "no receive", want: verbs.WCRNRRetryExcErr, rnr: true},
}...)

func (o *oracle) randomPlan(e *endpoint) *plan {
	i := o.rng.IntN(len(plans))
	p := plans[i]
	p.at = o.rng.IntN(e.total)
	switch {
	case p.recv != 0 || p.rnr:
		p.at = o.rng.IntN(e.total / 4)
	case i < len(windowPlans): // when windows are open
		p.at = e.total/2 + o.rng.IntN(e.total/2)
	}
	return &p
}

// op is a work request that was posted, and what must come of it.
type op struct {
	wr       verbs.SendWR
	signaled bool
	takes    bool   // a receive of the peer
	data     []byte // sent, or written
	off      int    // in the peer's window
	local    [][]byte
	expect   []byte // what a read or atomic operation brings
	after    []byte // the peer's window from off on, afterwards
	shared   bool   // an addition to the counter that all share
	via      *oracleWindow
	change   *windowChange // of a window; nil: none
}

// post posts some work requests.
func (o *oracle) post(e *endpoint) {
	var wrs []verbs.SendWR
	var marks []memory
	ops, msgs := e.ops, len(e.msgs)
	for range 1 + o.rng.IntN(5) {
		if len(ops) > e.total {
			break
		}
		marks = append(marks, *e.arena)
		x := o.make(e, ops, msgs)
		wrs, ops = append(wrs, x.wr), append(ops, x)
		if x.takes {
			msgs++
			if e.plan != nil && e.plan.rnr {
				e.peer.postRecvs(msgs - len(e.peer.recvs))
			}
		}
	}
	ops = ops[len(e.ops):]
	n, st := e.qp.PostSend(wrs)
	if (n == len(wrs)) != (st == ucs.OK) {
		o.fail("%s: posted %d of %d: %v", e.name, n, len(wrs), st)
	}
	if n < len(wrs) && (st != ucs.NoResource || len(e.ops)-e.next+n < sqDepth) {
		o.fail("%s: %v after %d of %d, %d outstanding", e.name, st, n, len(wrs), len(e.ops)-e.next)
	}
	if n < len(ops) {
		e.arena.rewind(&marks[n])
	}
	for _, x := range ops[:n] {
		e.ops = append(e.ops, x)
		if x.takes {
			e.msgs = append(e.msgs, x)
		}
		e.predict(x)
	}
	for i := range wrs[:n] {
		if wrs[i].Flags&verbs.SendInline != 0 && wrs[i].NumSG > 0 { // the memory is free again
			for _, b := range ops[i].local {
				fill(o, b)
			}
		}
	}
}

// make makes the work request that follows earlier, msgs of which take receives.
func (o *oracle) make(e *endpoint, earlier []*op, msgs int) *op {
	p, i := e.plan, len(earlier)
	kind := pick(o, verbs.OpSend, verbs.OpSend, verbs.OpSend, verbs.OpSendImm, verbs.OpSendImm, verbs.OpWrite, verbs.OpWrite, verbs.OpWrite,
		verbs.OpWriteImm, verbs.OpWriteImm, verbs.OpRead, verbs.OpRead, verbs.OpRead, verbs.OpCompareSwap, verbs.OpFetchAdd, verbs.OpFetchAdd)
	spoiled := p != nil && p.spoil != nil && i == p.at
	atLeast := 0
	switch {
	case i == e.total:
		kind = verbs.OpWrite // the last one is signalled, and tells the end
	case spoiled:
		kind, atLeast = p.ops[o.rng.IntN(len(p.ops))], 9
	case p != nil && (p.recv != 0 || p.rnr) && msgs <= p.at && (i >= e.total/2 || takesRecv(kind)):
		kind, atLeast = verbs.OpSend, 9
	}
	x := &op{wr: verbs.SendWR{ID: uint64(i) | sendID, Op: kind, RKey: e.peer.window.mr.RKey()}}
	x.signaled = e.sig || i == e.total || o.chance(0.4)
	if x.signaled && !e.sig {
		x.wr.Flags |= verbs.SendSignaled
	}
	if o.chance(0.1) {
		x.wr.Flags |= verbs.SendFence
	}
	x.takes = takesRecv(kind)
	if kind == verbs.OpSendImm || kind == verbs.OpWriteImm {
		x.wr.Imm = o.rng.Uint32()
	}
	switch kind {
	case verbs.OpCompareSwap, verbs.OpFetchAdd:
		o.makeAtomic(e, x, earlier, !spoiled)
	case verbs.OpLocalInv: // in vain
	case verbs.OpRead:
		n := max(atLeast, o.size(e))
		if spoiled || !o.through(e, x, n, 1) {
			x.off = o.rng.IntN(windowSize - n)
		}
		x.wr.Remote = e.peer.window.mr.Addr() + uint64(x.off)
		o.gather(e, x, n)
	default:
		n := max(atLeast, o.size(e))
		if spoiled || x.wr.Op != verbs.OpWrite && x.wr.Op != verbs.OpWriteImm || !o.through(e, x, n, 1) {
			x.off = o.rng.IntN(windowSize - n)
		}
		x.wr.Remote = e.peer.window.mr.Addr() + uint64(x.off)
		if n <= verbs.InlineLen && o.chance(0.3) && !spoiled {
			o.inline(e, x, n)
		} else {
			o.gather(e, x, n)
			x.data = slices.Concat(x.local...)
		}
		if kind == verbs.OpWrite || kind == verbs.OpWriteImm {
			x.fence(earlier, len(x.data))
		}
	}
	if spoiled {
		p.spoil(e, &x.wr)
	}
	return x
}

func takesRecv(op verbs.Opcode) bool {
	return op == verbs.OpSend || op == verbs.OpSendImm || op == verbs.OpWriteImm
}

// size is a random message length.
func (o *oracle) size(e *endpoint) int {
	switch {
	case o.chance(0.3):
		return o.rng.IntN(65)
	case o.chance(0.5):
		return o.rng.IntN(e.mtu + 1)
	case o.chance(0.3):
		return min(e.longest(), (1+o.rng.IntN(5))*e.mtu) // to the last byte
	default:
		return o.rng.IntN(e.longest())
	}
}

// gather gives x random local memory of n bytes, in pieces.
func (o *oracle) gather(e *endpoint, x *op, n int) {
	pieces := 1 + o.rng.IntN(verbs.MaxSGE)
	for k := range pieces {
		part := n
		if k < pieces-1 {
			part = o.rng.IntN(n + 1)
		}
		s, b := e.arena.take(part)
		if len(b) < part {
			o.fail("%s: the arena is too small", e.name)
		}
		n -= part
		if x.wr.Op != verbs.OpRead {
			fill(o, b)
		}
		x.wr.SG[k], x.local = s, append(x.local, b)
	}
	x.wr.NumSG = uint8(pieces)
	// A last piece without bytes would be spoiled in vain.
	for x.wr.NumSG > 1 && x.wr.SG[x.wr.NumSG-1].Len == 0 {
		x.wr.NumSG--
	}
}

// longest is the length of the longest message.
func (e *endpoint) longest() int { return min(windowSize/2, 6*e.mtu) }

// inline puts n bytes into the work request, or has them copied into it.
func (o *oracle) inline(e *endpoint, x *op, n int) {
	x.wr.Flags |= verbs.SendInline
	if o.chance(0.5) {
		fill(o, x.wr.Inline[:n])
		x.wr.InlineLen = uint8(n)
		x.data = slices.Clone(x.wr.Inline[:n])
		return
	}
	o.gather(e, x, n)
	x.data = slices.Concat(x.local...)
}

func (o *oracle) makeAtomic(e *endpoint, x *op, earlier []*op, share bool) {
	s, b := e.arena.take(8)
	x.wr.SG[0], x.wr.NumSG, x.local = s, 1, [][]byte{b}
	if share && x.wr.Op == verbs.OpFetchAdd && o.chance(0.5) {
		c := e.peer.dev.counter.mr
		x.shared, x.wr.Remote, x.wr.RKey, x.wr.Swap = true, c.Addr(), c.RKey(), 1
		return
	}
	if !share || !o.through(e, x, 8, 8) {
		x.off = 8 * o.rng.IntN(windowSize/8)
	}
	x.wr.Remote = e.peer.window.mr.Addr() + uint64(x.off)
	x.wr.Swap, x.wr.Compare = o.rng.Uint64(), o.rng.Uint64()
	if o.chance(0.7) {
		x.wr.Compare = binary.NativeEndian.Uint64(e.model[x.off:])
	}
	x.fence(earlier, 8)
}

// fence has x, which changes n bytes, wait for the reads before it that see them:
// one whose answer was lost is carried out again.
func (x *op) fence(earlier []*op, n int) {
	for _, r := range slices.Backward(earlier) {
		if r.wr.Op == verbs.OpRead && x.off < r.off+r.length() && r.off < x.off+n {
			x.wr.Flags |= verbs.SendFence
		}
		if x.wr.Flags&verbs.SendFence != 0 || r.wr.Flags&verbs.SendFence != 0 {
			return
		}
	}
}

// length of the local memory in bytes.
func (x *op) length() int {
	n := 0
	for _, b := range x.local {
		n += len(b)
	}
	return n
}

// predict carries x out on the model.
func (e *endpoint) predict(x *op) {
	switch x.wr.Op {
	case verbs.OpWrite, verbs.OpWriteImm:
		x.after = x.data
	case verbs.OpRead:
		x.expect = slices.Clone(e.model[x.off : x.off+x.length()])
	case verbs.OpCompareSwap, verbs.OpFetchAdd:
		if x.shared {
			e.o.adds[e.peer.dev.i]++
			return
		}
		x.expect = slices.Clone(e.model[x.off : x.off+8])
		old := binary.NativeEndian.Uint64(x.expect)
		switch {
		case x.wr.Op == verbs.OpFetchAdd:
			x.after = binary.NativeEndian.AppendUint64(nil, old+x.wr.Swap)
		case old == x.wr.Compare:
			x.after = binary.NativeEndian.AppendUint64(nil, x.wr.Swap)
		}
	default:
	}
	copy(e.model[x.off:], x.after)
}

// postRecvs posts n receives on the endpoint's own queue.
func (e *endpoint) postRecvs(n int) {
	if e.srq {
		e.o.postShared(e.dev, n)
		return
	}
	p := e.peer.plan
	for ; n > 0 && len(e.recvs)-e.recvNext < rqDepth && len(e.recvs) < e.peer.total+5; n-- {
		at := len(e.recvs)
		if p != nil && p.rnr && at >= p.at {
			return
		}
		spoil := verbs.WCSuccess
		if p != nil && p.recv != 0 && at == p.at {
			spoil = p.recv
		}
		r, wr := e.o.makeRecv(e.arena, uint64(at)|recvID, e.longest(), spoil)
		if k, st := e.qp.PostRecv([]verbs.RecvWR{wr}); k != 1 {
			e.o.fail("%s: post receive %d: %v", e.name, at, st)
		}
		e.recvs = append(e.recvs, r)
	}
}

func (o *oracle) postShared(v *oracleDev, n int) {
	for ; n > 0 && len(v.srqRecvs) < rqDepth && v.srqMem.room() > windowSize; n-- {
		r, wr := o.makeRecv(v.srqMem, uint64(v.srqMem.next)|sharedID, windowSize/2, verbs.WCSuccess)
		if k, st := v.srq.PostRecv([]verbs.RecvWR{wr}); k != 1 {
			o.fail("device %d: post shared receive: %v", v.i, st)
		}
		v.srqRecvs[r.id] = r
	}
}

// makeRecv makes a receive for messages of up to n bytes, in pieces.
func (o *oracle) makeRecv(m *memory, id uint64, n int, spoil verbs.WCStatus) (*recvBuf, verbs.RecvWR) {
	if spoil == verbs.WCLocLenErr {
		n = o.rng.IntN(9)
	}
	r := &recvBuf{id: id}
	wr := verbs.RecvWR{ID: id}
	pieces := 1 + o.rng.IntN(verbs.MaxSGE)
	for k := range pieces {
		part := n
		if k < pieces-1 {
			part = o.rng.IntN(n + 1)
			if spoil == verbs.WCLocProtErr {
				part = 0
			}
		}
		n -= part
		s, b := m.take(part)
		if len(b) < part {
			o.fail("no memory for receives")
		}
		if spoil == verbs.WCLocProtErr {
			s.LKey ^= 1
		}
		wr.SG[k] = s
		r.sgs, r.mem = append(r.sgs, s), append(r.mem, b)
	}
	wr.NumSG = uint8(pieces)
	return r, wr
}
