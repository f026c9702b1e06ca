package soft

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/verbs"
)

// Bits that tell work requests of different queues apart.
const (
	sendID   = 1 << 32
	recvID   = 1 << 33
	sharedID = 1 << 34
	indexOf  = 1<<32 - 1
)

// work does random things until all is posted.
func (o *oracle) work() {
	killAt := -1
	if o.chance(0.1) {
		killAt = o.rng.IntN(400)
	}
	for step := 0; slices.ContainsFunc(o.eps, func(e *endpoint) bool { return len(e.ops) <= e.total }); step++ {
		if step > 100_000 {
			o.fail("not all can be posted")
		}
		e := pick(o, o.eps...)
		if step == killAt {
			e.killed = true
			o.must(e.qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
			o.net.Note("kill %s", e.name)
		}
		switch p := o.rng.Float64(); {
		case p < 0.01:
			e.pause(o.chance(0.8))
		case p < 0.03:
			e.dev.datagrams.post()
		case p < 0.05:
			e.dev.datagrams.postRecvs(1 + o.rng.IntN(4))
		case p < 0.08:
			pick(o, o.unreliable...).post()
		case p < 0.1:
			pick(o, o.unreliable...).postRecvs(1 + o.rng.IntN(4))
		case p < 0.18:
			e.changeWindow()
		case p < 0.3:
			o.post(e)
		case p < 0.45:
			if len(e.recvs)-e.recvNext < 16 {
				e.postRecvs(1 + o.rng.IntN(4))
			}
		case p < 0.65:
			o.poll(e.dev)
		default:
			for range 1 + o.rng.IntN(8) {
				o.advance()
			}
		}
	}
}

// pause takes the queue pair from RTS to SQD, or back.
func (e *endpoint) pause(on bool) {
	from, to := verbs.StateSQD, verbs.StateRTS
	if on {
		from, to = to, from
	}
	if e.qp.Query().State != from {
		return
	}
	if on {
		e.o.tally["paused"]++
	}
	e.o.net.Note("%s: to %v", e.name, to)
	e.o.must(e.qp.Modify(&verbs.QPAttr{State: to}, verbs.AttrState))
}

// finish gives all messages their receives and waits for all work requests.
func (o *oracle) finish() {
	ending := func(e *endpoint) bool { return e.next < len(e.ops) }
	for _, e := range o.eps {
		e.pause(false)
	}
	limit, steps := o.net.Now().Add(20*time.Second), 0
	for slices.ContainsFunc(o.eps, ending) {
		o.supply()
		o.pollAll()
		if !o.advance() && slices.ContainsFunc(o.eps, ending) {
			if o.pollAll(); slices.ContainsFunc(o.eps, ending) {
				o.fail("nothing happens any more")
			}
		}
		if steps++; limit.Before(o.net.Now()) || steps > 500_000 {
			o.fail("not ended after %v", o.net.Now().Sub(sim.Start))
		}
	}
	// What is still under way comes to rest.
	rest := o.net.Now().Add(100 * time.Millisecond)
	for o.net.Now().Before(rest) && o.advance() {
		o.pollAll()
	}
	o.pollAll()
}

// supply posts the receives that messages will need.
func (o *oracle) supply() {
	for _, e := range o.eps {
		if e.srq {
			o.postShared(e.dev, 8-len(e.dev.srqRecvs))
		} else {
			e.postRecvs(len(e.peer.msgs) - len(e.recvs))
		}
	}
}

func (o *oracle) pollAll() {
	for _, v := range o.devs {
		for o.poll(v) > 0 {
		}
	}
}

// poll takes some completions of a device.
func (o *oracle) poll(v *oracleDev) int {
	var room [16]verbs.WC
	wcs := room[:1+o.rng.IntN(len(room))]
	n := v.cq.Poll(wcs)
	if n < 0 {
		o.fail("device %d: the completion queue overran", v.i)
	}
	for i := range wcs[:n] {
		wc := &wcs[i]
		e := v.byQPN[wc.QPN]
		if wc.QPN == v.datagrams.qp.QPN() {
			v.datagrams.completed(wc)
			continue
		}
		if u := v.unreliable[wc.QPN]; u != nil {
			u.completed(wc)
			continue
		}
		if e == nil {
			o.fail("device %d: completion of unknown queue pair %#x", v.i, uint32(wc.QPN))
		}
		if wc.ID&sendID != 0 {
			e.ended(wc)
		} else {
			e.received(wc)
		}
	}
	return n
}

// ended looks at the end of a work request, and of those before it that were not
// signalled.
func (e *endpoint) ended(wc *verbs.WC) {
	i := int(wc.ID & indexOf)
	if i < e.next || i >= len(e.ops) {
		e.o.fail("%s: op %d ended, the next to end is %d of %d", e.name, i, e.next, len(e.ops))
	}
	for ; e.next < i; e.next++ {
		if e.failed || e.ops[e.next].signaled {
			e.o.fail("%s: op %d ended, but op %d did not", e.name, i, e.next)
		}
		e.succeed(e.next)
	}
	e.next++
	switch {
	case wc.Status == verbs.WCSuccess:
		if e.failed || !e.ops[i].signaled {
			e.o.fail("%s: op %d succeeded: failed before %v, signalled %v", e.name, i, e.failed, e.ops[i].signaled)
		}
		if want := sendWCOps[e.ops[i].wr.Op]; wc.Op != want {
			e.o.fail("%s: op %d ended as opcode %d, want %d", e.name, i, wc.Op, want)
		}
		e.succeed(i)
	case e.failed:
		if wc.Status != verbs.WCFlushErr {
			e.o.fail("%s: op %d ended with %d after the first error", e.name, i, wc.Status)
		}
	default:
		e.failed, e.failedAt, e.firstErr = true, i, wc.Status
		if !e.mayFail(i, wc.Status) {
			e.o.fail("%s: op %d ended with status %d", e.name, i, wc.Status)
		}
	}
}

// fated reports whether op i must fail.
func (e *endpoint) fated(i int) bool {
	p := e.plan
	switch {
	case p == nil:
		return false
	case p.spoil != nil:
		return i == p.at
	default:
		return p.at < len(e.msgs) && e.msgs[p.at] == e.ops[i]
	}
}

// unanswered reports whether op i is a READ or an atomic before one that the peer
// refuses: its answer may be lost, and the peer gives no other.
func (e *endpoint) unanswered(i int) bool {
	if e.plan == nil || !e.plan.kills || e.ops[i].wr.Op != verbs.OpRead && atomicOps>>e.ops[i].wr.Op&1 == 0 {
		return false
	}
	for i++; i < len(e.ops); i++ {
		if e.fated(i) {
			return true
		}
	}
	return false
}

// mayFail reports whether op i may be the first that fails, so. Some deaths have
// witnesses, for which check looks.
func (e *endpoint) mayFail(i int, s verbs.WCStatus) bool {
	peer := e.peer
	switch {
	case e.fated(i) && s == e.plan.want:
		e.o.tally[e.plan.name]++
		return true
	case e.unanswered(i) && s == e.plan.want:
		e.o.tally["lost its answer before a refusal"]++
		return true
	case s == verbs.WCRetryExcErr: // nobody answers any more
		e.o.tally["no answer"]++
		return e.plan != nil && e.plan.kills || peer.plan != nil || peer.killed
	case s == verbs.WCFlushErr: // it died as the responder
		e.o.tally["died as the responder"]++
		return e.killed || peer.plan != nil && peer.plan.kills
	}
	return false
}

// succeed looks at what op i brought.
func (e *endpoint) succeed(i int) {
	x := e.ops[i]
	e.o.tally["work requests"]++
	if e.fated(i) {
		e.o.fail("%s: op %d succeeded, in spite of: %s", e.name, i, e.plan.name)
	}
	if x.via != nil {
		e.o.tally["requests by windows"]++
	}
	switch {
	case x.change != nil:
		x.change.ended(e.o, x.wr.Op)
	case x.shared:
		old := binary.NativeEndian.Uint64(x.local[0])
		seen := e.o.olds[e.peer.dev.i]
		if seen[old] {
			e.o.fail("%s: op %d: two additions found %d", e.name, i, old)
		}
		seen[old] = true
	case x.expect != nil:
		if got := slices.Concat(x.local...); !bytes.Equal(got, x.expect) {
			e.o.fail("%s: op %d brought other bytes than it must, from byte %d of %d on", e.name, i, differ(got, x.expect), len(got))
		}
	}
}

// differ is where a and b differ first.
func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// received looks at the end of a receive.
func (e *endpoint) received(wc *verbs.WC) {
	r := e.takeRecv(wc.ID)
	p := e.peer.plan
	switch wc.Status {
	case verbs.WCSuccess:
		if e.recvErr || e.recvDone >= len(e.peer.msgs) {
			e.o.fail("%s: message %d of %d came, errors before: %v", e.name, e.recvDone, len(e.peer.msgs), e.recvErr)
		}
		if p != nil && (p.recv != 0 || p.rnr) && e.recvDone >= p.at {
			e.o.fail("%s: message %d came, in spite of: %s", e.name, e.recvDone, p.name)
		}
		e.message(wc, r, e.peer.msgs[e.recvDone])
		e.o.tally["messages"]++
		e.recvDone++
	case verbs.WCFlushErr:
		if s := e.qp.Query().State; s != verbs.StateErr {
			e.o.fail("%s: a receive was flushed in state %d", e.name, s)
		}
		e.recvErr = true
	default:
		if e.recvErr || p == nil || wc.Status != p.recv || e.recvDone != p.at {
			e.o.fail("%s: receive of message %d ended with %d", e.name, e.recvDone, wc.Status)
		}
		e.recvErr = true
	}
}

// consumeRecv finds the receive that completed: the next one posted, or any shared
// one.
func (e *endpoint) takeRecv(id uint64) *recvBuf {
	if e.srq {
		r := e.dev.srqRecvs[id]
		if r == nil {
			e.o.fail("%s: receive %#x completed and is not queued", e.name, id)
		}
		delete(e.dev.srqRecvs, id)
		return r
	}
	if e.recvNext >= len(e.recvs) || e.recvs[e.recvNext].id != id {
		e.o.fail("%s: receive %#x completed, the next is number %d", e.name, id, e.recvNext)
	}
	e.recvNext++
	return e.recvs[e.recvNext-1]
}

// message compares what came with what was sent.
func (e *endpoint) message(wc *verbs.WC, r *recvBuf, x *op) {
	op, data, flags, imm := verbs.WCRecv, x.data, verbs.WCFlags(0), uint32(0)
	switch x.wr.Op {
	case verbs.OpWriteImm:
		op, data, flags, imm = verbs.WCRecvImm, nil, verbs.WCWithImm, x.wr.Imm
	case verbs.OpSendImm:
		flags, imm = verbs.WCWithImm, x.wr.Imm
	case verbs.OpSendInv:
		flags, imm = verbs.WCWithInv, x.wr.Imm
	default:
	}
	if wc.Op != op || wc.Flags&(verbs.WCWithImm|verbs.WCWithInv) != flags || wc.Imm != imm || int(wc.Len) != len(x.data) {
		e.o.fail("%s: message %d came as %+v, want opcode %d, immediate %#x, length %d", e.name, e.recvDone, *wc, op, imm, len(x.data))
	}
	got := slices.Concat(r.mem...)
	if !bytes.Equal(got[:len(data)], data) {
		e.o.fail("%s: message %d has other bytes, from byte %d of %d on", e.name, e.recvDone, differ(got, data), len(data))
	}
	if n := differ(got[len(data):], make([]byte, len(got)-len(data))); n < len(got)-len(data) {
		e.o.fail("%s: message %d of %d bytes wrote byte %d behind its end", e.name, e.recvDone, len(data), n)
	}
}

// check looks at what is left in the end.
func (o *oracle) check() {
	for _, e := range o.eps {
		e.checkEnd()
		e.checkWindow()
		e.arena.checkGaps(o, e.name)
	}
	o.checkDatagrams()
	o.checkUnreliable()
	for _, v := range o.devs {
		n := int(binary.NativeEndian.Uint64(v.counter.buf))
		if n > o.adds[v.i] || len(o.olds[v.i]) > n {
			o.fail("device %d: the counter is %d after %d additions, %d of which succeeded", v.i, n, o.adds[v.i], len(o.olds[v.i]))
		}
		for old := range o.olds[v.i] {
			if old >= uint64(n) {
				o.fail("device %d: an addition found %d, the counter is %d", v.i, old, n)
			}
		}
		if v.srqMem != nil {
			v.srqMem.checkGaps(o, "shared receives")
		}
	}
}

func (m *memory) checkGaps(o *oracle, name string) {
	for _, at := range m.gaps {
		for _, b := range m.buf[at : at+8] {
			if b != 0 {
				o.fail("%s: bytes at %d, where no piece is, were written", name, at)
			}
		}
	}
}

// checkEnd holds the endpoint's fate against its causes.
func (e *endpoint) checkEnd() {
	state, peerState := e.qp.Query().State, e.peer.qp.Query().State
	switch {
	case !e.failed && e.plan != nil:
		e.o.fail("%s: nothing failed, in spite of: %s", e.name, e.plan.name)
	case e.failed && state != verbs.StateErr:
		e.o.fail("%s: failed, but in state %d", e.name, state)
	case e.failed && e.firstErr == verbs.WCRetryExcErr && peerState != verbs.StateErr:
		e.o.fail("%s: op %d was not answered, but the peer is in state %d", e.name, e.failedAt, peerState)
	case !e.failed && !e.killed && state != verbs.StateRTS && (e.peer.plan == nil || !e.peer.plan.kills):
		e.o.fail("%s: nothing failed, but in state %d", e.name, state)
	}
	acked := 0
	for _, x := range e.ops[:e.succeeded()] {
		if x.takes {
			acked++
		}
	}
	if e.peer.recvDone < acked {
		e.o.fail("%s: %d messages were acknowledged, %d came", e.name, acked, e.peer.recvDone)
	}
}

// succeeded is how many ops did.
func (e *endpoint) succeeded() int {
	if e.failed {
		return e.failedAt
	}
	return len(e.ops)
}

// checkWindow compares the memory that the endpoint wrote at its peer: all that
// succeeded is there, in order; of what failed, anything may be.
func (e *endpoint) checkWindow() {
	want := slices.Clone(e.base)
	k := e.succeeded()
	for _, x := range e.ops[:k] {
		copy(want[x.off:], x.after)
	}
	got := e.peer.window.buf
	for at := range got {
		if got[at] != want[at] && !slices.ContainsFunc(e.ops[k:], func(x *op) bool {
			return at >= x.off && at < x.off+len(x.after) && x.after[at-x.off] == got[at]
		}) {
			e.o.fail("%s: byte %d at the peer is %#x, want %#x after %d ops", e.name, at, got[at], want[at], k)
		}
	}
}
