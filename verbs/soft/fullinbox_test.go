package soft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// TestSilentPeerOfMany: a device that does nothing any more fails all queue pairs
// that send to it, also those that its full inbox lets send nothing.
func TestSilentPeerOfMany(t *testing.T) {
	for _, closed := range []bool{true, false} {
		t.Run(map[bool]string{true: "closed", false: "asleep"}[closed], func(t *testing.T) {
			sw := NewSwitch()
			b := newEnd(t, New(Config{Link: LinkInproc, Switch: sw, Engine: EngineInline, Depth: minDepth}), verbs.RC, 64)
			p := New(Config{Link: LinkInproc, Switch: sw, Engine: EngineInline})
			const posts = 20
			as := make([]*end, 4)
			for i := range as {
				as[i] = newEnd(t, p, verbs.RC, 64)
				as[i].connectAs(b, verbs.QPAttr{Timeout: 8, RetryCnt: 2})
			}
			if closed {
				b.closeAll()
			}
			for _, a := range as {
				for id := range uint64(posts) {
					a.send(verbs.SendWR{ID: id, Op: verbs.OpSend})
				}
			}
			for i, a := range as {
				for id := range uint64(posts) {
					want := verbs.WCFlushErr
					if id == 0 {
						want = verbs.WCRetryExcErr
					}
					w := a.completion()
					require.Equal(t, [2]uint64{id, uint64(want)}, [2]uint64{w.ID, uint64(w.Status)}, "queue pair %d", i)
				}
			}
		})
	}
}

// TestFullInboxIsNoTimeout: where the peer empties its inbox, however slowly, a
// queue pair that finds no room in it waits.
func TestFullInboxIsNoTimeout(t *testing.T) {
	sw := NewSwitch()
	b := newEnd(t, New(Config{Link: LinkInproc, Switch: sw, Engine: EngineInline, Depth: minDepth}), verbs.RC, 64)
	p := New(Config{Link: LinkInproc, Switch: sw, Engine: EngineInline})
	a := newEnd(t, p, verbs.RC, 64)
	a.connectAs(b, verbs.QPAttr{Timeout: 8, RetryCnt: 7})
	in := &b.c.(*device).own.inbox
	fill := func() { // with packets of others, for nobody
		for c, seq := in.claim(); c != nil; c, seq = in.claim() {
			c.fill(&packet{Header: wire.Header{DestQP: 1, PKey: defaultPKey}}, 0)
			cpu.StoreRelease32(&c.seq, seq)
		}
	}
	fill()
	a.send(verbs.SendWR{Op: verbs.OpSend})
	var wc [1]verbs.WC
	for began := ucs.Now(); ucs.Now() < began+30_000_000; { // longer than all time-outs
		for range 100 {
			require.Zero(t, a.cq.Poll(wc[:]), "%v", wc[0].Status)
		}
		g := in.readRing.Load()
		h := g.head.Load()
		if g.at(h).seq.Load() != h+1 {
			g, h = in.nextRing(g, h), 0
		}
		cpu.StoreRelease32(&g.head, h+1)
		fill()
	}
}

// TestFullInboxWakes: who fills the inbox of a device that sleeps wakes it.
func TestFullInboxWakes(t *testing.T) {
	sw := NewSwitch()
	b := newEnd(t, New(Config{Link: LinkInproc, Switch: sw, Depth: minDepth}), verbs.RC, 64)
	a := newEnd(t, New(Config{Link: LinkInproc, Switch: sw, Engine: EngineInline}), verbs.RC, 64)
	at := verbs.QPAttr{MaxDestRdAtomic: 1, MaxRdAtomic: 1, MinRNRTimer: 1, Timeout: 20, RetryCnt: 0}
	a.connectAs(b, at)
	b.connectAs(a, at)
	asleep := func() bool { return b.c.(*device).own.sleeping.Load() != 0 }
	require.Eventually(t, asleep, 10*time.Second, time.Millisecond)
	wrs := make([]verbs.SendWR, 4*minDepth)
	for i := range wrs {
		wrs[i] = verbs.SendWR{ID: uint64(i), Op: verbs.OpWrite, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 8)}, Remote: b.mr.Addr(), RKey: b.mr.RKey()}
	}
	wrs[len(wrs)-1].Flags = verbs.SendSignaled
	n, st := a.qp.PostSend(wrs)
	require.Equal(t, len(wrs), n, "%v", st)
	require.Equal(t, verbs.WCSuccess, a.completion().Status)
}
