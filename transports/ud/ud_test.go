package ud

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// node is an interface with what came to it.
type node struct {
	*iface
	got        []uint64 // headers
	source     uint32   // of the last message
	fails      []uct.Failure
	events     []uct.Event
	pending    func([]uct.Token) int
	onAM       func(d *uct.Desc)
	kept       func(ds []uct.Desc) uint64
	spareSlots []uint32
}

func (n *node) HandleEvents(es []uct.Event) { n.events = append(n.events, es...) }
func (n *node) HandleAM(_ []byte, ds []uct.Desc) uint64 {
	for i := range ds {
		n.source = ds[i].RxConn
		if n.onAM != nil {
			n.onAM(&ds[i])
		} else {
			n.got = append(n.got, ds[i].Header)
		}
	}
	if n.kept != nil {
		return n.kept(ds)
	}
	return 0
}
func (n *node) HandlePending(ts []uct.Token) int { return n.pending(ts) }
func (n *node) HandleFailure(f uct.Failure)      { n.fails = append(n.fails, f) }

func (n *node) address() uct.Address {
	return uct.Address{Device: n.DeviceAddress(nil), Iface: n.Address(nil)}
}

// nodes opens n interfaces on devices of ps.
func nodes(t testing.TB, ps nic.Providers, n int) []*node { return nodesWith(t, ps, n, nil) }

func nodesWith(t testing.TB, ps nic.Providers, n int, s *config.Set) []*node {
	return nodesOf(t, ps, n, uct.IfaceConfig{Settings: s})
}

// nodesOf opens n interfaces as conf says.
func nodesOf(t testing.TB, ps nic.Providers, n int, conf uct.IfaceConfig) []*node {
	ns := make([]*node, n)
	for i := range ns {
		ns[i] = nodeOf(t, ps, i+1, conf)
	}
	return ns
}

// nodeOf opens the interface of that number.
func nodeOf(t testing.TB, ps nic.Providers, number int, conf uct.IfaceConfig) *node {
	c := Component(ps)
	infos, _ := c.Domains(nil)
	d, err := c.OpenDomain(infos[0], uct.DomainConfig{})
	require.NoError(t, err)
	n := new(node)
	ifs, _ := d.Ifaces()
	conf.Handler, conf.Worker = n, uct.UUID{byte(number), byte((number - 1) >> 8), 1}
	f, err := d.OpenIface(ifs[0], conf)
	require.NoError(t, err)
	n.iface = f.(*iface)
	t.Cleanup(func() { assert.NoError(t, f.Close()); assert.NoError(t, d.Close()) })
	return n
}

// sees looks at what n shares with the async goroutine.
func (n *node) sees(what func() bool) bool {
	n.EnterWait()
	defer n.Leave()
	return what()
}

func connect(t testing.TB, a, b *node) *endpoint {
	e, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	return e.(*endpoint)
}

// until progresses the nodes until cond holds.
func until(t testing.TB, cond func() bool, ns ...*node) {
	t.Helper()
	for end := ucs.Now().Add(3 * time.Minute); !cond(); {
		for _, n := range ns {
			n.Progress(64)
		}
		if end.Before(ucs.Now()) {
			require.FailNow(t, "not in time")
		}
	}
}

// TestCloseWithoutPeer: closing waits for a peer that is gone neither where only
// goodbyes are under way nor where it has left questions unanswered.
func TestCloseWithoutPeer(t *testing.T) {
	for name, busy := range map[string]bool{"idle": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			ns := nodesWith(t, inproc(), 2, settingsOf(t, "UCX_UD_LINGER_TIMEOUT=60m", "UCX_UD_TIMEOUT=60m"))
			a, b := ns[0], ns[1]
			p := newPair(t, ns)
			require.True(t, b.sees(func() bool { return b.qp.Close() == nil })) // as a crash does
			if busy {
				require.Equal(t, ucs.OK, p.to.AMUint64(1, 1, 1))
				until(t, func() bool { return a.sees(p.to.s.Unresponsive) }, a)
			}
			began := ucs.Now()
			require.NoError(t, a.Close())
			require.Less(t, ucs.Now().Sub(began), time.Minute)
		})
	}
}

// TestCloseIsAnswered: closing does not wait long for a peer whose program does not
// look.
func TestCloseIsAnswered(t *testing.T) {
	for range 5 {
		ns := nodesWith(t, inproc(), 2, settingsOf(t, "UCX_UD_LINGER_TIMEOUT=60s"))
		a, b := ns[0], ns[1]
		e := connect(t, a, b)
		until(t, func() bool { return e.AMUint64(1, 1, 1) == ucs.OK }, a, b)
		until(t, func() bool { return len(b.got) == 1 }, a, b)
		e.Close()
		began := ucs.Now()
		require.NoError(t, a.Close())
		took := ucs.Now().Sub(began)
		require.Less(t, took, a.linger, "%v, %v", a.stats.Snapshot(), b.stats.Snapshot())
	}
}

// TestCloseIsQuick: closing takes at most 10 ms towards peers that live, whether they are
// driven or not, and whether they send too. A busy machine delays single closes, so the
// fastest of several counts.
func TestCloseIsQuick(t *testing.T) {
	const limit, tries = 10 * time.Millisecond, 50
	for name, peer := range map[string]struct{ driven, sends bool }{
		"undriven": {}, "undriven, sends": {sends: true}, "driven": {driven: true}, "driven, sends": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			var took []time.Duration
			for len(took) == 0 || took[len(took)-1] > limit {
				require.Less(t, len(took), tries, "%v", took)
				ns := nodesWith(t, inproc(), 2, nil)
				a, b := ns[0], ns[1]
				meet(t, a, b)
				if peer.sends {
					meet(t, b, a)
				}
				var stop atomic.Bool
				var g sync.WaitGroup
				if peer.driven {
					g.Go(func() {
						for !stop.Load() {
							b.Progress(64)
						}
					})
				}
				began := ucs.Now()
				assert.NoError(t, a.Close())
				took = append(took, ucs.Now().Sub(began))
				stop.Store(true)
				g.Wait()
			}
		})
	}
}

// meet opens a flow from a to b by a message.
func meet(t *testing.T, a, b *node) {
	e := connect(t, a, b)
	until(t, func() bool { return e.AMUint64(1, 1, 1) == ucs.OK }, a, b)
	until(t, func() bool { return len(b.got) == 1 }, a, b)
}
