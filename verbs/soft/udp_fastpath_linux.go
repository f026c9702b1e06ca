package soft

import (
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// addFast adds the next fast-path messages to t, as far as t and the window allow and
// until t has most packets. It returns false if it added none. The packet that fills the
// window has AckReq.
//
//hot:bench BenchmarkSmallStream
func (q *qp) addFast(t *segmentBatch, most int) bool {
	r := &q.req
	if !t.gso {
		return false
	}
	open := shortPackets*r.window.cur - r.psn.Diff(r.una)
	n, bytes := 0, uint64(0)
	for end := q.sq.end(); r.tx != end && n < open && t.count < most; n++ {
		w := q.sq.at(r.tx)
		if !w.isFast() {
			break
		}
		size := wire.BTHLen + wire.ICRCLen + (int(w.n)+3)&^3
		if w.op == verbs.OpWrite {
			size += wire.RETHLen
		}
		if !t.reserve(size) {
			break
		}
		b := t.buf[t.pos : t.pos+maxFastPacket]
		f := wire.BTHFields{
			Opcode: wire.SendOnly, Solicited: w.flags&verbs.SendSolicited != 0,
			AckReq: n+1 == open || (w.flags|q.alwaysFlags)&verbs.SendSignaled != 0,
			PadCnt: uint8(-w.n & 3), PKey: q.pkey, DestQP: q.dest, PSN: w.psn,
		}
		to := b[wire.BTHLen:]
		if w.op == verbs.OpWrite {
			f.Opcode, f.Solicited = wire.WriteOnly, false
			wire.RETH(to).Put(w.remote, w.rkey, w.n)
			to = to[wire.RETHLen:]
		}
		wire.BTH(b).Put(&f)
		if w.n == 8 {
			*(*[8]byte)(to) = *(*[8]byte)(w.inline[:])
		} else {
			*(*[verbs.InlineLen]byte)(to) = w.inline
			for i := w.n; i&3 != 0; i++ {
				to[i] = 0
			}
		}
		q.txICRC.Seal(t.peer.prefix, b[:size], uint16(t.count))
		t.pos += size
		t.total += size
		t.count++
		bytes += uint64(w.n)
		r.tx++
	}
	if n == 0 {
		return false
	}
	r.psn = r.psn.Add(n)
	q.updateSndMax()
	q.count(cntTxPackets, uint64(n))
	q.count(cntTxBytes, bytes)
	return true
}
