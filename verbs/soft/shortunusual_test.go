package soft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// What is unusual does not go the short way: the functions say so, and have done
// nothing.

// standing is what the short way may change.
type standing struct {
	req      requester
	rsp      responder
	sends    uint32
	receives int
	counters []stats.Counter
}

func standingOf(q *qp) standing {
	return standing{q.req, q.rsp, q.sq.end(), q.rq.len(), q.d.Stats().Snapshot()}
}

// TestShortSendStandsBack: of a send.
func TestShortSendStandsBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		to   func(q *qp, r *verbs.SendWR)
	}{
		{"nothing unusual", nil},
		{"another operation", func(_ *qp, r *verbs.SendWR) { r.Op = verbs.OpSendInv }},
		{"data elsewhere", func(_ *qp, r *verbs.SendWR) { r.Flags &^= verbs.SendInline }},
		{"data to be gathered", func(_ *qp, r *verbs.SendWR) { r.NumSG = 1 }},
		{"fenced", func(_ *qp, r *verbs.SendWR) { r.Flags |= verbs.SendFence }},
		{"too long for a cell", func(_ *qp, r *verbs.SendWR) { r.InlineLen = smallLen + 1 }},
		{"something waits before it", func(q *qp, _ *verbs.SendWR) { q.req.tx-- }},
		{"no room in the queue", func(q *qp, _ *verbs.SendWR) { q.req.head -= uint32(len(q.sq.ring)) }},
		{"the window is full", func(q *qp, _ *verbs.SendWR) { q.req.una = q.req.psn.Add(-shortPackets * q.req.window.cur) }},
		{"a work request failed", func(q *qp, _ *verbs.SendWR) { q.req.failed = true }},
		{"the receiver was not ready", func(q *qp, _ *verbs.SendWR) { q.req.rnrWait = 1 }},
		{"a probe is under way", func(q *qp, _ *verbs.SendWR) { q.req.probe.pending = true }},
		{"an answer is due", func(q *qp, _ *verbs.SendWR) { q.rsp.pendingResponses = 1 }},
		{"a refusal is due", func(q *qp, _ *verbs.SendWR) { q.rsp.nak = wire.NakSequence }},
		{"the queue pair ends", func(q *qp, _ *verbs.SendWR) { q.rsp.flags |= rspRefused }},
		{"completions are lost", func(q *qp, _ *verbs.SendWR) { q.failedCQ = q.sendCQ }},
		{"draining", func(q *qp, _ *verbs.SendWR) { q.state.Store(uint32(verbs.StateSQD)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := pair(t, New(Config{Link: LinkInproc, Engine: EngineInline}), 64)
			b.recv(1, 0, 64)
			a.send(shortSend(1)) // the queue has got memory
			require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
			q, r := a.qp.(*qp), shortSend(2)
			if tc.to == nil {
				require.True(t, q.sendFast(&r))
				require.True(t, b.device().own.inbox.ready())
				return
			}
			tc.to(q, &r)
			before := standingOf(q)
			assert.False(t, q.sendFast(&r))
			assert.Equal(t, before, standingOf(q))
			assert.False(t, b.device().own.inbox.ready())
			q.state.Store(uint32(verbs.StateRTS))
		})
	}
}

// TestShortArrivalStandsBack: of what arrives.
func TestShortArrivalStandsBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		to   func(e *end, q *qp, c *cell)
	}{
		{"nothing unusual", nil},
		{"another opcode", func(_ *end, _ *qp, c *cell) { c.op = wire.SendOnlyImm }},
		{"longer than a cell", func(_ *end, _ *qp, c *cell) { c.n = smallLen + 1 }},
		{"data in memory", func(_ *end, _ *qp, c *cell) { c.nsg = 1 }},
		{"a packet is missing", func(_ *end, _ *qp, c *cell) { c.psn = c.psn.Add(1) }},
		{"another partition", func(_ *end, _ *qp, c *cell) { c.pkey-- }},
		{"no shared receive", func(_ *end, q *qp, _ *cell) { q.srq = newSRQ(q, 4) }},
		{"a shared receive of two pieces", func(_ *end, q *qp, _ *cell) {
			q.srq = newSRQ(q, 4)
			q.srq.PostRecv([]verbs.RecvWR{{NumSG: 2}})
		}},
		{"the first packet", func(_ *end, q *qp, _ *cell) { q.rsp.flags |= rspFirstPacket }},
		{"the queue pair ends", func(_ *end, q *qp, _ *cell) { q.rsp.flags |= rspRefused }},
		{"a request is missing", func(_ *end, q *qp, _ *cell) { q.rsp.gap = gapOpen }},
		{"a receive was begun", func(_ *end, q *qp, _ *cell) { q.rsp.flags |= rspRecvHeld }},
		{"in the midst of a message", func(_ *end, q *qp, _ *cell) { q.rsp.flags |= rspMidMessage }},
		{"not ready to send", func(_ *end, q *qp, _ *cell) { q.state.Store(uint32(verbs.StateRTR)) }},
		{"no receive", func(_ *end, q *qp, _ *cell) { q.rq.reset() }},
		{"a receive of two pieces", func(_ *end, q *qp, _ *cell) { q.rq.peek().nsg = 2 }},
		{"a receive that is too short", func(_ *end, q *qp, _ *cell) { q.rq.peek().sg[0].Len = 7 }},
		{"a receive outside of the region", func(_ *end, q *qp, _ *cell) { q.rq.peek().sg[0].Addr += 1 << 20 }},
		{"a receive that may not be written", func(e *end, q *qp, _ *cell) {
			m := testMR(e.t, q.pd, 64, 0)
			q.rq.peek().sg[0] = verbs.SGE{Addr: m.Addr(), Len: 64, LKey: m.LKey()}
		}},
		{"an old acknowledgement", func(_ *end, q *qp, c *cell) { c.piggyback(q.req.una.Add(-1)) }},
		{"an acknowledgement of what was not sent", func(_ *end, q *qp, c *cell) { c.piggyback(q.req.psn) }},
		{"an acknowledgement past a read", func(_ *end, q *qp, _ *cell) { q.req.rdAtomic = 1 }},
		{"an acknowledgement before a failure", func(_ *end, q *qp, _ *cell) { q.req.failed = true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := pair(t, New(Config{Link: LinkInproc, Engine: EngineInline}), 64)
			q := b.qp.(*qp)
			q.rsp.flags = 0
			b.recv(1, 0, 64)
			b.send(shortSend(2))
			a.recv(3, 0, 64)
			a.send(shortSend(4))
			g := b.device().own.inbox.readRing.Load()
			c := g.at(g.head.Load())
			c.piggyback(q.req.una)
			if tc.to == nil {
				require.True(t, q.handleFastCell(c, 0))
				require.Zero(t, q.rq.len())
				return
			}
			tc.to(b, q, c)
			before := standingOf(q)
			assert.False(t, q.handleFastCell(c, 0))
			assert.Equal(t, before, standingOf(q))
			q.srq = nil
			q.state.Store(uint32(verbs.StateRTS))
		})
	}
}

// TestShortWayToTheSilent: a short send that nobody acknowledges fails after the
// configured time.
func TestShortWayToTheSilent(t *testing.T) {
	p := New(Config{Link: LinkInproc, Engine: EngineInline})
	a, b := newEnd(t, p, verbs.RC, 64), newEnd(t, p, verbs.RC, 64)
	a.connectAs(b, verbs.QPAttr{Timeout: 8, RetryCnt: 2})
	b.connectAs(a, verbs.QPAttr{Timeout: 8, RetryCnt: 2})
	b.recv(1, 0, 64)
	a.send(shortSend(1)) // the queue has got memory
	require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
	require.Eventually(t, func() bool { a.cq.Poll(nil); return !a.qp.(*qp).isTimed }, 10*time.Second, time.Microsecond)
	for id := range uint64(3) {
		a.send(shortSend(id))
	}
	require.Equal(t, verbs.WCRetryExcErr, a.completion().Status)
	require.Equal(t, verbs.WCFlushErr, a.completion().Status)
	require.Equal(t, verbs.WCFlushErr, a.completion().Status)
}

// TestShortWayWakes: a short send is acknowledged by a device that slept.
func TestShortWayWakes(t *testing.T) {
	p := New(Config{Link: LinkInproc})
	a, b := newEnd(t, p, verbs.RC, 64), newEnd(t, p, verbs.RC, 64)
	a.connectAs(b, verbs.QPAttr{}) // no time-out: a packet that goes again wakes, too
	b.connectAs(a, verbs.QPAttr{})
	for id := range uint64(5) {
		require.Eventually(t, func() bool { return b.device().own.sleeping.Load() != 0 }, 10*time.Second, time.Millisecond)
		b.recv(id, 0, 64)
		a.send(shortSend(id))
		require.Equal(t, verbs.WCSuccess, a.completion().Status)
	}
}

// TestShortWayAfterAFailure: a queue pair that is connected again after a work
// request failed has forgotten that.
func TestShortWayAfterAFailure(t *testing.T) {
	a, b := pair(t, New(Config{Link: LinkInproc, Engine: EngineInline}), 64)
	bad := verbs.SendWR{Op: verbs.OpSend, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 64)}}
	bad.SG[0].LKey++
	a.send(bad)
	require.Equal(t, verbs.WCLocProtErr, a.completion().Status)
	for _, e := range []*end{a, b} {
		require.NoError(t, e.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
	}
	a.connect(b)
	b.connect(a)
	for id := range uint64(2 * minSends) {
		b.recv(id, 0, 64)
		a.send(shortSend(id))
		require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
	}
}

// shortSend is a signalled message of eight bytes in the work request.
func shortSend(id uint64) verbs.SendWR {
	return verbs.SendWR{ID: id, Op: verbs.OpSend, Flags: verbs.SendInline | verbs.SendSignaled, InlineLen: 8}
}
