package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// TestForeignAckFirst: towards a foreign peer the acknowledgement of a message goes
// before the program's reply: such a peer's program may wait for its send to complete
// before it looks at the reply.
func TestForeignAckFirst(t *testing.T) {
	for name, post := range map[string]func(e, o *end, n int){
		"inline": func(e, _ *end, n int) {
			e.post(n, verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendInline, InlineLen: 8})
		},
		"long": func(e, _ *end, n int) {
			e.post(n, verbs.SendWR{Op: verbs.OpSend, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{e.sge(0, 2000)}})
		},
		"inline write": func(e, o *end, n int) {
			e.post(n, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.SendInline, InlineLen: 8, Remote: o.mr.Addr(), RKey: o.mr.RKey()})
		},
	} {
		for _, replies := range []int{1, 3, 40} {
			t.Run(name, func(t *testing.T) {
				var sent []wire.Opcode
				c := Config{Link: LinkUDP, Addr: localhost, Engine: EngineInline}
				x := newEnd(t, New(c), verbs.RC, 4096)
				c.Tap = func(out bool, _ *wire.Network, b []byte) {
					if out {
						sent = append(sent, wire.BTH(b).Opcode())
					}
				}
				y := newEnd(t, New(c), verbs.RC, 4096)
				at := verbs.QPAttr{MaxDestRdAtomic: 1, MaxRdAtomic: 1, MinRNRTimer: 1, Timeout: 18, RetryCnt: 7, RNRRetry: 7}
				x.connectFeatures(y, at)
				y.connectFeatures(x, at)
				for range 5 { // its receives are not all used
					sent = nil
					y.recv(1, 0, 64)
					for range replies {
						x.recv(2, 0, 4096)
					}
					x.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, InlineLen: 8})
					require.Equal(t, uint64(1), y.completion(x).ID)
					post(y, x, replies)
					for x.completion(y).Op != verbs.WCSend {
					}
					x.got = nil
					q := y.qp.(*qp)
					for q.req.una != q.req.psn {
						for _, e := range []*end{x, y} {
							e.cq.Poll(make([]verbs.WC, 64))
						}
					}
					require.Equal(t, wire.Acknowledge, sent[0], "%v", sent)
				}
			})
		}
	}
}

// post posts n copies of wr at once.
func (e *end) post(n int, wr verbs.SendWR) {
	wrs := make([]verbs.SendWR, n)
	for i := range wrs {
		wrs[i] = wr
	}
	k, st := e.qp.PostSend(wrs)
	require.Equal(e.t, ucs.OK, st)
	require.Equal(e.t, n, k)
}

// TestBackToForeign: towards a foreign peer the acknowledgement goes first, also where
// the socket took only a part of the packets: the others are made again, and no more.
func TestBackToForeign(t *testing.T) {
	for name, tc := range map[string]struct {
		features uint32
		want     []wire.Opcode
	}{
		"foreign": {0, []wire.Opcode{wire.Acknowledge, wire.WriteOnly, wire.WriteOnly, wire.WriteOnly}},
		"soft":    {verbs.PeerGoucx, []wire.Opcode{wire.WriteOnly, wire.WriteOnly, wire.WriteOnly, wire.Acknowledge}},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{Link: LinkUDP, Addr: localhost, Engine: EngineInline}
			x, y := newEnd(t, New(c), verbs.RC, 64), newEnd(t, New(c), verbs.RC, 64)
			at := verbs.QPAttr{MaxDestRdAtomic: 1, MaxRdAtomic: 1, MinRNRTimer: 1, Timeout: 18, RetryCnt: 7, RNRRetry: 7, PeerFeatures: tc.features}
			x.connectFeatures(y, at)
			y.connectFeatures(x, at)
			wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{x.sge(0, 8)}, Remote: y.mr.Addr(), RKey: y.mr.RKey()}
			x.post(1, wr) // makes the ring
			x.completion(y)
			q := x.qp.(*qp)
			q.acquire()
			defer q.transmitAndRelease()
			x.post(3, wr)
			q.markMemoryUser()
			r := &q.rsp
			r.ackState, r.ack = ackDue, r.psn.Add(-1)
			start := q.saveSendState()
			packets := func() []wire.Opcode {
				ops := []wire.Opcode{}
				for q.nextPacket(&q.txPacket) {
					ops = append(ops, q.txPacket.Opcode)
				}
				return ops
			}
			for sent := range len(tc.want) + 1 {
				require.Equal(t, tc.want, packets())
				q.restoreSendState(&start, sent)
				require.Equal(t, tc.want[sent:], packets(), "%d were sent", sent)
				q.restoreSendState(&start, 0)
			}
		})
	}
}

// TestForeignAsksUDP: each request that goes to a foreign peer asks for an
// acknowledgement, those with inline data too, which go to a soft peer by the short way.
func TestForeignAsksUDP(t *testing.T) {
	var requests, asks int
	c := Config{Link: LinkUDP, Addr: localhost, Engine: EngineInline}
	y := newEnd(t, New(c), verbs.RC, 4096)
	c.Tap = func(out bool, _ *wire.Network, b []byte) {
		if h := wire.BTH(b); out {
			requests++
			if h.AckReq() {
				asks++
			}
		}
	}
	x := newEnd(t, New(c), verbs.RC, 4096)
	at := verbs.QPAttr{MaxDestRdAtomic: 1, MaxRdAtomic: 1, MinRNRTimer: 1, Timeout: 18, RetryCnt: 7, RNRRetry: 7}
	x.connectFeatures(y, at)
	y.connectFeatures(x, at)
	q := x.qp.(*qp)
	for _, wr := range []verbs.SendWR{
		{Op: verbs.OpWrite, Flags: verbs.SendInline, InlineLen: 8, Remote: y.mr.Addr(), RKey: y.mr.RKey()},
		{Op: verbs.OpWrite, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{x.sge(0, 2000)}, Remote: y.mr.Addr(), RKey: y.mr.RKey()},
		{Op: verbs.OpSend, Flags: verbs.SendInline, InlineLen: 8},
	} {
		for _, n := range []int{1, 5} {
			requests, asks = 0, 0
			for range n {
				y.recv(1, 0, 64)
			}
			x.post(n, wr)
			for q.req.una != q.req.psn || q.req.tx != q.sq.end() {
				for _, e := range []*end{x, y} {
					e.cq.Poll(make([]verbs.WC, 64))
				}
			}
			require.Equal(t, n, requests)
			require.Equal(t, n, asks)
		}
	}
}
