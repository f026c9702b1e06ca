package soft

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// TestFastReceive compares the responder's fast path with the general one: a random
// sequence of requests leaves the same memory, completions, counters and state,
// whichever of them take the fast path.
//
// 20,000 sequences, 10 million with GOUCX_TEST_LONG.
func TestFastReceive(t *testing.T) {
	n := 20_000
	switch {
	case os.Getenv("GOUCX_TEST_LONG") != "":
		n = 10_000_000
	case race.Enabled:
		n = 2000
	}
	fast, general := newReceiveWorld(t), newReceiveWorld(t)
	fast.takesFast = true
	for seed := range uint64(n) {
		fast.run(seed)
		general.run(seed)
		a, b := fast.outcome(), general.outcome()
		if a != b || string(fast.buf) != string(general.buf) || len(fast.log) != len(general.log) {
			require.Equal(t, b, a, "seed %d", seed)
			require.Equal(t, general.buf, fast.buf, "seed %d", seed)
		}
		for i := range fast.log {
			if fast.log[i] != general.log[i] {
				require.Equal(t, general.log, fast.log, "seed %d", seed)
			}
		}
	}
	assert.Greater(t, fast.tookFast, 2*n)
	assert.Greater(t, fast.packets-fast.tookFast, 2*n)
}

// receiveWorld is a queue pair that gets requests from a test instead of a link.
type receiveWorld struct {
	*end
	q         *qp
	rnd       *rand.Rand
	start     requester
	srq       *srq
	takesFast bool
	tookFast  int
	packets   int

	// log holds what the program and the peer see, in order: completions, events, and
	// response packets.
	log []any
}

// receiveOutcome is what a sequence of requests leaves, less what matters only within a
// message and differs where none is under way.
type receiveOutcome struct {
	psn, ack                          verbs.PSN
	msn, unacked, unackedRun          uint32
	flags                             rspFlags
	kind                              wire.Kind
	gap                               gapState
	ackState                          ackState
	longAckReq, isTimed               bool
	nak                               wire.Syndrome
	received, remaining, numSaved     uint32
	offset                            uint64
	pendingResponses                  uint16
	ackDeadline, gapDeadline          ucs.Time
	laterArrivals, buffered, receives int
	una                               verbs.PSN
	head, limit                       uint32
	impliedAcks                       int
	counts                            counts
}

func newReceiveWorld(t *testing.T) *receiveWorld {
	p := New(Config{Link: LinkInproc, Engine: EngineInline})
	a, b := newEnd(t, p, verbs.RC, 2048), newEnd(t, p, verbs.RC, 64)
	at := verbs.QPAttr{PathMTU: verbs.MTU256, RQPSN: 0xfffff0, SQPSN: 0xfffff0, MaxDestRdAtomic: 4, MaxRdAtomic: 4, MinRNRTimer: 1, RetryCnt: 7, RNRRetry: 7}
	a.connectAs(b, at)
	b.connectAs(a, at)
	w := &receiveWorld{end: a, q: a.qp.(*qp)}
	w.q.sq.ring = make([]wqe, 8)
	w.start = w.q.req
	w.srq = newSRQ(w.q, 64)
	t.Cleanup(func() { // what Close looks at
		w.reset(0)
		w.q.srq = nil
	})
	return w
}

// reset makes the queue pair new: connected, with three SENDs that are not acknowledged.
func (w *receiveWorld) reset(seed uint64) {
	q := w.q
	w.rnd = rand.New(rand.NewPCG(seed, 1))
	w.log = w.log[:0]
	saved := q.rsp.maxSaved
	q.req.reorder.reset()
	q.rsp.reorder.reset()
	q.rsp = newResponder()
	q.rsp.psn, q.rsp.maxSaved, q.rsp.minTimer = w.start.psn, saved, 1
	q.req = w.start
	q.req.probe.enabled = seed%2 == 0
	q.failedCQ = nil
	q.state.Store(uint32(qpRTS))
	q.counts = counts{}
	q.isTimed = false
	q.e.lock.lock()
	q.e.timed = q.e.timed[:0]
	q.d.own.numTimed.Store(0)
	q.e.lock.unlock()
	q.rq.reset()
	w.srq.reset()
	w.srq.limit.Store(0)
	if q.srq = nil; seed%3 == 0 {
		q.srq = w.srq
	}
	clear(w.buf)
	q.sq.nextPSN = q.req.psn
	q.sq.head.Store(q.req.head)
	t := q.req.head
	for range 3 {
		wr := verbs.SendWR{ID: uint64(t), Op: verbs.OpSend, Flags: verbs.SendInline | verbs.SendFlags(w.rnd.IntN(2))*verbs.SendSignaled, InlineLen: 8}
		q.fillWQE(t, &wr)
		t++
	}
	q.sq.tail.publish(uint64(t))
	q.req.tx, q.req.psn, q.req.sndMax = t, q.sq.nextPSN, q.sq.nextPSN
}

// run posts a random sequence of requests and receives to the queue pair.
func (w *receiveWorld) run(seed uint64) {
	w.reset(seed)
	r, q := w.rnd, w.q
	q.acquire()
	defer q.release()
	if r.IntN(4) != 0 {
		q.rsp.flags = 0
	}
	for range 4 + r.IntN(16) {
		if q.rsp.flags&rspRefused != 0 && r.IntN(2) == 0 {
			break
		}
		now := ucs.Time(r.IntN(100_000))
		for range 1 + r.IntN(2) {
			w.postRecv()
		}
		w.request(now)
		w.note()
		if r.IntN(6) == 0 && q.loadState() == verbs.StateRTS {
			p := &q.txPacket
			if q.nextResponse(p) || q.nextAck(p) {
				h := p.Header
				h.VA, h.RKey, h.DMALen, h.DestQP = 0, 0, 0, 0
				w.log = append(w.log, h, p.n)
			}
		}
		if q.rsp.ackState == ackDelayed && r.IntN(8) == 0 {
			q.rsp.ackState = ackDue // its deadline
		}
	}
}

// note appends completions and events to the log.
func (w *receiveWorld) note() {
	var wc [8]verbs.WC
	for n := w.cq.(*cq).pop(wc[:]); n > 0; n = w.cq.(*cq).pop(wc[:]) {
		for i := range n {
			wc[i].QPN = 0
			w.log = append(w.log, wc[i])
		}
	}
	for e, ok := w.c.TryAsync(); ok; e, ok = w.c.TryAsync() {
		w.c.Ack(e)
		w.log = append(w.log, e.Type)
	}
}

// postRecv posts a receive, most of one SGE that is long enough.
func (w *receiveWorld) postRecv() {
	r := w.rnd
	wr := verbs.RecvWR{ID: r.Uint64(), NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{w.sge(1024+r.IntN(200), 64+r.IntN(700))}}
	switch r.IntN(40) {
	case 0:
		wr.SG[0].Len = 5
	case 1:
		wr.SG[0].LKey++
	case 2, 3:
		wr.NumSG, wr.SG[0].Len, wr.SG[1] = 2, 10, w.sge(1900, 64)
	case 4:
		wr.NumSG = 0
	}
	if w.q.srq != nil {
		w.srq.PostRecv([]verbs.RecvWR{wr})
		if r.IntN(4) == 0 {
			w.srq.SetLimit(r.IntN(3))
		}
		return
	}
	w.q.rq.post([]verbs.RecvWR{wr})
}

// sequenceOps are the opcodes of the requests; those of the fast path are frequent.
var sequenceOps = [...]wire.Opcode{
	wire.SendOnly, wire.SendOnly, wire.SendOnly, wire.SendOnly, wire.SendOnly, wire.SendOnly, wire.SendOnly, wire.SendOnly,
	wire.WriteOnly, wire.WriteOnly, wire.WriteOnly, wire.WriteOnly, wire.WriteOnly, wire.WriteOnly,
	wire.SendOnlyImm, wire.WriteOnlyImm, wire.SendFirst, wire.WriteFirst,
	wire.ReadRequest, wire.FetchAdd, wire.CompareSwap,
}

// request makes a request and has the queue pair process it.
func (w *receiveWorld) request(now ucs.Time) {
	r, q := w.rnd, w.q
	p := &q.e.rxPacket
	p.Header = wire.Header{
		Opcode: sequenceOps[r.IntN(len(sequenceOps))], Solicited: r.IntN(4) == 0, PKey: q.pkey, DestQP: q.num, PSN: q.rsp.psn,
		ImmDt: r.Uint32(), RKey: w.mr.RKey(), VA: w.mr.Addr() + uint64(r.IntN(60))*8, SwapDt: 3, CmpDt: 3,
	}
	if q.rsp.flags&rspMidMessage != 0 && r.IntN(10) != 0 { // continue the message
		p.Opcode = wire.SendMiddle
		if q.rsp.kind == wire.KindWrite {
			p.Opcode = wire.WriteMiddle
		}
		if r.IntN(3) != 0 {
			p.Opcode++ // Last
		}
	}
	if r.IntN(100) == 0 {
		p.Opcode = wire.Opcode(r.IntN(int(wire.WriteOnlyImm) + 1)) // also one that does not fit the message
	}
	info := p.Opcode.Info()
	n := r.IntN(72)
	switch {
	case !info.Payload:
		n = 0
	case info.Place == wire.PlaceFirst || info.Place == wire.PlaceMiddle:
		n = q.mtu
	case info.Place == wire.PlaceLast && info.Kind == wire.KindWrite && r.IntN(8) != 0:
		n = min(int(q.rsp.remaining), q.mtu)
	}
	p.AckReq = info.Place == wire.PlaceOnly && r.IntN(4) == 0
	p.DMALen = uint32(n)
	if info.Place == wire.PlaceFirst {
		p.DMALen = uint32(q.mtu + 1 + r.IntN(2*q.mtu))
	}
	if p.Opcode == wire.ReadRequest {
		p.DMALen = uint32(r.IntN(600))
	}
	switch r.IntN(120) { // what is unusual
	case 0, 1, 2:
		p.PSN = p.PSN.Add(-1 - r.IntN(3))
	case 3, 4, 5:
		p.PSN = p.PSN.Add(1 + r.IntN(3))
	case 6:
		p.RKey++
	case 7:
		p.VA += 4096
	case 8:
		p.DMALen += 4
	case 9:
		p.PKey = 7
	case 10:
		p.VA++
	}
	data := make([]byte, n, 2*verbs.InlineLen+q.mtu)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	p.n, p.nsg, p.sg[0] = n, 1, data
	ack, flags := verbs.PSN(0), uint8(0)
	if p.AckReq {
		flags |= cellAckReq
	}
	if p.Solicited {
		flags |= cellSE
	}
	if info.Kind == wire.KindSend && r.IntN(6) == 0 { // an ACK precedes the request
		flags |= cellAck
		ack = q.req.una.Add(r.IntN(4) - 1)
	}
	w.packets++
	if w.takesFast && p.PSN == q.rsp.psn && p.PKey == q.pkey && n <= verbs.InlineLen && q.mayReceiveFast() {
		took := false
		switch p.Opcode {
		case wire.SendOnly:
			took = q.receiveFast(p.Opcode, data, flags, ack, now)
		case wire.WriteOnly:
			b := make([]byte, wire.RETHLen, wire.RETHLen+n)
			wire.RETH(b).Put(p.VA, p.RKey, p.DMALen)
			took = q.receiveFast(p.Opcode, append(b, data...), flags, ack, now)
		default: // has no fast path
		}
		if took {
			w.tookFast++
			return
		}
	}
	if flags&cellAck != 0 {
		q.handlePacket(&packet{Header: wire.Header{Opcode: wire.Acknowledge, Syndrome: wire.AckNoCredits, PKey: q.pkey, PSN: ack}}, now)
	}
	q.handlePacket(p, now)
}

func (w *receiveWorld) outcome() receiveOutcome {
	q, s := w.q, &w.q.rsp
	o := receiveOutcome{
		psn: s.psn, ack: s.ack, msn: s.msn, unacked: s.unacked, unackedRun: s.unackedRun, flags: s.flags, kind: s.kind, gap: s.gap,
		ackState: s.ackState, longAckReq: s.longAckReq, isTimed: q.isTimed, nak: s.nak, numSaved: s.numSaved,
		pendingResponses: s.pendingResponses, ackDeadline: s.ackDeadline, gapDeadline: s.gapDeadline,
		laterArrivals: s.laterArrivals, buffered: len(s.reorder.packets), receives: q.rq.len() + w.srq.len(),
		una: q.req.una, head: q.req.head, limit: w.srq.limit.Load(), impliedAcks: q.req.impliedAcks, counts: q.counts,
	}
	if s.flags&rspMidMessage != 0 {
		o.received, o.remaining = s.received, s.remaining
		if s.kind == wire.KindWrite {
			o.offset = s.addr - w.mr.Addr()
		} else {
			o.remaining = 0
		}
	}
	return o
}
