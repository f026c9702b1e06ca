package ud

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs/soft"
)

// compute is a program that does something else for a while.
func compute(d time.Duration, cond func() bool) bool {
	for end := ucs.Now().Add(d); ucs.Now() < end; {
		if cond() {
			return true
		}
		cpu.Yield()
	}
	return false
}

// counter reads a counter of n's.
func (n *node) counter(name string) uint64 {
	for _, c := range n.stats.Snapshot() {
		if c.Name == name {
			return c.Value
		}
	}
	panic(name)
}

// posts counts the work requests of n.
func (n *node) posts() uint64 {
	n.EnterWait()
	defer n.Leave()
	return n.postedID
}

// TestComputingReceiver: while the program computes, what arrives is acknowledged
// and kept for it, a bounded part of it, and the sender is not told that it failed.
func TestComputingReceiver(t *testing.T) {
	ns := nodes(t, inproc(), 2)
	a, b := ns[0], ns[1]
	p := newPair(t, ns)
	b.got = nil
	sent, last := 0, ucs.Now()
	compute(time.Minute, func() bool {
		if p.to.AMUint64(1, uint64(sent), 0) == ucs.OK {
			sent, last = sent+1, ucs.Now()
			return false
		}
		a.Progress(64)
		return sent > 260 && ucs.Now().Sub(last) > 100*time.Millisecond
	})
	assert.Greater(t, sent, 260, "more than one window, so somebody acknowledged")
	assert.Less(t, sent, 900, "more than the receiver has memory for")
	require.Empty(t, b.got, "nobody is called while the program computes")
	require.Positive(t, b.counter("sections"))
	until(t, func() bool { return len(b.got) == sent }, b)
	for i, h := range b.got {
		require.EqualValues(t, i, h)
	}
	until(t, func() bool { return p.to.AMUint64(1, 0, 0) == ucs.OK }, a, b)
	until(t, func() bool { return len(b.got) == sent+1 }, a, b)
	require.Empty(t, a.fails)
}

// TestFlushOfComputingPeer: a remote flush ends although the peer's program
// computes.
func TestFlushOfComputingPeer(t *testing.T) {
	ns := nodes(t, loopback(), 2)
	p := newPair(t, ns)
	for i := range uct.Token(20) {
		require.Equal(t, ucs.OK, p.to.AMUint64(1, 1, 1))
		st := p.to.Flush(uct.FlushRemote, i+1)
		require.Equal(t, ucs.InProgress, st)
		until(t, func() bool { return len(p.a.events) == int(i+1) }, p.a)
		require.Equal(t, uct.Event{Token: i + 1}, p.a.events[i])
	}
}

// TestSilentPeer: one that is gone without a word fails the endpoint in time, and
// nothing else; few packets ask for it.
func TestSilentPeer(t *testing.T) {
	ns := nodesWith(t, loopback(), 3, settingsOf(t, "UCX_UD_TIMEOUT=700ms", "UCX_UD_KEEPALIVE_INTERVAL=100ms"))
	a, b, c := ns[0], ns[1], ns[2]
	p, other := newPair(t, []*node{a, b}), connect(t, a, c)
	until(t, func() bool { return other.AMUint64(1, 1, 1) == ucs.OK }, a, c)
	require.True(t, b.sees(func() bool { return b.qp.Close() == nil })) // as a crash does
	require.Equal(t, ucs.OK, p.to.AMUint64(1, 1, 1))
	was, began := a.posts(), ucs.Now()
	require.Equal(t, ucs.InProgress, p.to.Flush(uct.FlushRemote, 9))
	until(t, func() bool { return len(a.fails) > 0 }, a, c)
	took := ucs.Now().Sub(began)
	assert.Greater(t, took, 600*time.Millisecond)
	assert.Less(t, took, 20*time.Second)
	assert.Less(t, a.posts()-was, uint64(100))
	require.Equal(t, []uct.Event{{Token: 9, Status: ucs.PeerFailed}}, a.events)
	require.Len(t, a.fails, 1)
	require.ErrorIs(t, a.fails[0].Err, ucs.ErrPeerFailed)
	require.Equal(t, uct.Failure{Endpoint: p.to, RxConn: a.source, Err: a.fails[0].Err}, a.fails[0])
	require.Equal(t, ucs.PeerFailed, p.to.AMUint64(1, 1, 1))
	require.Equal(t, ucs.OK, other.AMUint64(1, 1, 1), "other peers go on")
	until(t, func() bool { return len(c.got) == 2 }, a, c)
	compute(100*time.Millisecond, func() bool { a.Progress(64); return false })
	require.Len(t, a.fails, 1)
}

// TestPeerCloses: endpoint and source of a peer that closes are reported once and
// together, after its last message.
func TestPeerCloses(t *testing.T) {
	for name, ps := range map[string]nic.Providers{
		"inproc": inproc(), "udp": loopback(), "lossy": faulty(soft.LinkInproc, 0.05),
	} {
		t.Run(name, func(t *testing.T) {
			for round := range 10 {
				ns := nodesWith(t, ps, 2, impatient(t, "2s"))
				a, b := ns[0], ns[1]
				p := newPair(t, ns)
				for i := range uint64(10) {
					until(t, func() bool { return p.back.AMUint64(1, i, i) == ucs.OK }, a, b)
				}
				for range 5 * round { // some of it is handed over before b closes
					a.Progress(2)
				}
				require.NoError(t, b.Close())
				until(t, func() bool { return len(a.fails) > 0 }, a)
				require.Equal(t, ucs.PeerFailed, p.to.AMUint64(1, 1, 1))
				compute(10*time.Millisecond, func() bool { a.Progress(64); return false })
				if name == "lossy" && a.fails[0].Err != nil {
					continue // every goodbye was lost
				}
				require.Len(t, a.got, 11)
				acked := name != "lossy" || a.fails[0].Acked // the last ACK may be lost
				require.Equal(t, []uct.Failure{{Endpoint: p.to, RxConn: a.source, Acked: acked}}, a.fails)
				p.to.Close()
			}
		})
	}
}

// TestPeerClosesTwo: with two endpoints to a peer and one back each is reported
// once.
func TestPeerClosesTwo(t *testing.T) {
	ns := nodes(t, inproc(), 2)
	a, b := ns[0], ns[1]
	p, second := newPair(t, ns), connect(t, a, b)
	until(t, func() bool { return second.AMUint64(1, 1, 1) == ucs.OK }, a, b)
	until(t, func() bool { return len(b.got) == 2 }, a, b)
	require.NoError(t, b.Close())
	until(t, func() bool { return len(a.fails) == 2 }, a)
	require.ElementsMatch(t, []uct.Endpoint{p.to, second}, []uct.Endpoint{a.fails[0].Endpoint, a.fails[1].Endpoint})
	require.Equal(t, a.source, a.fails[0].RxConn+a.fails[1].RxConn)
	require.Zero(t, a.ActiveEndpoints())
}

// TestIdlePeersStay: peers that say nothing for many times the silence live on, also
// where nobody polls.
func TestIdlePeersStay(t *testing.T) {
	ns := nodesWith(t, inproc(), 2, settingsOf(t, "UCX_UD_TIMEOUT=400ms", "UCX_UD_KEEPALIVE_INTERVAL=50ms"))
	a, b := ns[0], ns[1]
	p := newPair(t, ns)
	compute(2*time.Second, func() bool { return false })
	require.Positive(t, a.counter("sections"))
	for _, e := range []uct.Endpoint{p.to, p.back} { // the async goroutine may be inside for a moment
		until(t, func() bool { return e.AMUint64(1, 7, 7) == ucs.OK }, a, b)
	}
	until(t, func() bool { return len(a.got) == 2 && len(b.got) == 2 }, a, b)
	require.Empty(t, a.fails)
	require.Empty(t, b.fails)
}

// TestUnknownFlow: who sends by a flow that its receiver has given up learns it at
// once.
func TestUnknownFlow(t *testing.T) {
	ns := nodes(t, inproc(), 2)
	a, b := ns[0], ns[1]
	p := newPair(t, ns)
	for _, r := range receivers(b) {
		b.EnterWait()
		b.removeReceiver(r)
		b.Leave()
	}
	require.Equal(t, ucs.OK, p.to.AMUint64(1, 1, 1))
	until(t, func() bool { return len(a.fails) > 0 }, a, b)
	require.Equal(t, uct.Endpoint(p.to), a.fails[0].Endpoint)
	require.ErrorContains(t, a.fails[0].Err, arq.ResetByPeer.String())
}

func receivers(n *node) (rs []*arq.Receiver) {
	n.EnterWait()
	defer n.Leave()
	n.mux.EachReceiver(func(r *arq.Receiver) { rs = append(rs, r) })
	return rs
}

// TestKept: messages that are kept take up to a half of the receives, or as much
// memory as is allowed, and others go on.
func TestKept(t *testing.T) {
	for _, c := range []struct {
		name        string
		bytes, most int
	}{{"default", 0, 256}, {"budget", 64 << 10, 16}, {"tiny", 1, 1}, {"huge", 1 << 40, 256}} {
		t.Run(c.name, func(t *testing.T) { kept(t, c.bytes, c.most) })
	}
}

func kept(t *testing.T, budget, most int) {
	ns := nodesOf(t, inproc(), 2, uct.IfaceConfig{Resources: uct.Resources{MaxUnexpected: budget}})
	a, b := ns[0], ns[1]
	p := newPair(t, ns)
	var handles []uint64
	b.kept = func(ds []uct.Desc) (kept uint64) {
		for i := range ds {
			if ds[i].Flags&uct.DescCanRetain != 0 {
				kept |= 1 << i
				handles = append(handles, ds[i].Handle)
			}
		}
		return kept
	}
	sent, total := uint64(0), 3*uint64(most)+500
	until(t, func() bool {
		for sent < total && p.to.AMUint64(1, sent, sent) == ucs.OK {
			sent++
		}
		return uint64(len(b.got)) == 1+total
	}, a, b)
	require.Len(t, handles, most)
	b.kept = nil
	b.Release(handles)
	until(t, func() bool {
		return b.sees(func() bool { return b.iface.retained == 0 && len(b.freeRecvs) < refillBatch })
	}, b)
}

// TestFlushBeforeBye: what a peer took before it closed counts as arrived, though no
// acknowledgement said so before the bye.
func TestFlushBeforeBye(t *testing.T) {
	for i := range uct.Token(20) {
		ns := nodes(t, loopback(), 2)
		a, b := ns[0], ns[1]
		p := newPair(t, ns)
		b.got = nil
		require.Equal(t, ucs.OK, p.to.AMUint64(1, 1, 1))
		require.Equal(t, ucs.InProgress, p.to.Flush(uct.FlushRemote, i+1))
		until(t, func() bool { return len(b.got) == 1 }, b)
		b.sees(func() bool { // as Close does
			b.mux.EachReceiver(func(r *arq.Receiver) {
				bye := arq.CloseHeader(r)
				b.sendControl(b.peers[r.Peer], &bye, nil)
			})
			return true
		})
		until(t, func() bool { return len(a.events) == 1 }, a)
		require.Equal(t, uct.Event{Token: i + 1}, a.events[0])
	}
}
