package ud

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs/soft"
)

// night is two nodes on devices whose packets are lost where it is dark.
type night struct {
	*testing.T
	a, b *node
	dark [2]atomic.Bool // from each
}

func nightfall(t *testing.T, env ...string) *night {
	n := &night{T: t}
	sw := soft.NewSwitch()
	for i, to := range []**node{&n.a, &n.b} {
		f := &soft.Faults{Hook: func(p *soft.PacketInfo) soft.Verdict {
			return soft.Verdict{Drop: !p.Received && n.dark[i].Load()}
		}}
		ps := over(soft.Config{Link: soft.LinkInproc, Switch: sw, Faults: f})
		*to = nodeOf(t, ps, i+1, uct.IfaceConfig{Settings: settingsOf(t, env...)})
	}
	return n
}

// darkness is who is not heard.
type darkness struct {
	name        string
	there, back bool
}

var darknesses = []darkness{{"both ways", true, true}, {"there", true, false}, {"back", false, true}}

func (n *night) cut(d darkness) {
	n.dark[0].Store(d.there)
	n.dark[1].Store(d.back)
}

// flow is numbered messages one way.
type flow struct {
	e    *endpoint
	sent uint64
	checked
}

// flows opens a flow each way, of which the first message has arrived.
func (n *night) flows() (all [2]*flow) {
	ns := [2]*node{n.a, n.b}
	for i, to := range []*node{n.b, n.a} {
		f := &flow{e: connect(n, ns[i], to), checked: checked{t: n.T, mem: to.rx.Mem()}}
		to.onAM = f.take
		all[i] = f
		until(n, func() bool { f.send(n, 1); return f.next == 1 }, n.a, n.b)
	}
	return all
}

func (f *flow) send(t testing.TB, total uint64) {
	var buf [4096]byte
	pour(t, f.e, &f.sent, total, buf[:])
}

// whole sends both up to that many messages, and wants them to arrive once and in
// order, without a failure.
func (n *night) whole(all [2]*flow, total uint64) {
	n.Helper()
	until(n, func() bool {
		for _, f := range all {
			f.send(n, total)
		}
		return all[0].next == total && all[1].next == total
	}, n.a, n.b)
	require.Empty(n, n.a.fails)
	require.Empty(n, n.b.fails)
}

// TestBlackout: flows outlive a time in which nothing comes through, in either or
// in one direction: in the long form ten seconds with what they are by default.
func TestBlackout(t *testing.T) {
	for _, d := range darknesses {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			lasts, env := time.Second, []string{"UCX_UD_TIMEOUT=1m", "UCX_UD_KEEPALIVE_INTERVAL=100ms"}
			if os.Getenv("GOUCX_TEST_LONG") != "" {
				lasts, env = 10*time.Second, nil
			}
			n := nightfall(t, env...)
			all := n.flows()
			until(t, func() bool { all[0].send(t, 1500); all[1].send(t, 1500); return all[0].next > 1000 }, n.a, n.b)
			n.cut(d)
			all[0].send(t, 3000)
			all[1].send(t, 3000)
			compute(lasts, func() bool { n.a.Progress(64); n.b.Progress(64); return false })
			for i, dark := range []bool{d.there, d.back} {
				require.Less(t, all[i].next, uint64(3000), "what there is room for is less, and in the dark nothing comes: %v", dark)
			}
			n.cut(darkness{})
			n.whole(all, 3000)
		})
	}
}

// TestPartition: where the link never comes back, in either or in one direction,
// both ends learn it, by name, also the one that only listens. Later others go.
func TestPartition(t *testing.T) {
	for _, d := range darknesses {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			n := nightfall(t, "UCX_UD_TIMEOUT=1s", "UCX_UD_KEEPALIVE_INTERVAL=200ms")
			all := n.flows()
			n.cut(d)
			all[0].send(t, 10)
			until(t, func() bool { return len(n.a.fails) > 0 && len(n.b.fails) > 0 }, n.a, n.b)
			for i, o := range []*node{n.a, n.b} {
				require.ErrorIs(t, o.fails[0].Err, ucs.ErrPeerFailed)
				require.Equal(t, uct.Failure{Endpoint: all[i].e, RxConn: o.source, Err: o.fails[0].Err}, o.fails[0])
				st := all[i].e.AMUint64(1, 1, 1)
				for st == ucs.NoResource { // the async goroutine is inside
					st = all[i].e.AMUint64(1, 1, 1)
				}
				require.Equal(t, ucs.PeerFailed, st)
				all[i].e.Close()
				o.fails = nil
			}
			n.cut(darkness{})
			n.whole(n.flows(), 100)
		})
	}
}

// TestPartitionWhileConnecting: where one direction is dead from the start, who
// connects learns it by name, and who is asked keeps nothing. Later it goes.
func TestPartitionWhileConnecting(t *testing.T) {
	for _, d := range darknesses {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			n := nightfall(t, "UCX_UD_TIMEOUT=1s", "UCX_UD_KEEPALIVE_INTERVAL=100ms")
			n.cut(d)
			e := connect(t, n.a, n.b)
			require.Equal(t, ucs.OK, e.AMUint64(1, 1, 1), "it waits")
			until(t, func() bool { return len(n.a.fails) > 0 && n.b.sees(func() bool { return !n.b.mux.HasReceivers() }) }, n.a, n.b)
			require.Equal(t, uct.Endpoint(e), n.a.fails[0].Endpoint)
			require.ErrorIs(t, n.a.fails[0].Err, ucs.ErrPeerFailed)
			require.Empty(t, n.b.fails, "nothing came of it")
			e.Close()
			n.a.fails = nil
			n.cut(darkness{})
			n.whole(n.flows(), 100)
		})
	}
}
