package rc

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// night is two ends whose devices lie on a simulated network: its time, which is
// theirs, goes on while nothing is under way.
type night struct {
	*testing.T
	net  *sim.Net
	a, b *end
	at   [2]netip.AddrPort
	idle time.Duration // steps of the time while nothing moves
}

func nightfall(t *testing.T, env ...string) *night {
	n := &night{T: t, net: sim.New(1)}
	set := settingsOf(t, env...)
	for i, e := range []**end{&n.a, &n.b} {
		n.at[i] = netip.AddrPortFrom(netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i + 1)}), uint16(40001+i))
		p := soft.New(soft.Config{Fabric: n.net, Engine: soft.EngineInline, Addr: n.at[i].Addr(), Port: n.at[i].Port()})
		c := Component(func(*config.Set, *zap.Logger) []verbs.Provider { return []verbs.Provider{p} })
		*e = newEndWith(t, c, byte(i+1), set)
		require.NoError(t, (*e).CloseSection()) // the network is one goroutine's
	}
	n.heal()
	return n
}

// until drives both ends, and the time, until cond holds.
func (n *night) until(cond func() bool) {
	n.Helper()
	until(n, func() bool {
		for range 16 { // as often as a device looks at its clock
			n.a.Progress(64)
			n.b.Progress(64)
		}
		step := n.net.Now().Add(n.idle)
		if next, ok := n.net.Next(); ok && next <= step {
			step, n.idle = next, 0
		}
		n.idle = min(2*n.idle+10*time.Microsecond, time.Millisecond)
		n.net.RunUntil(step)
		return cond()
	})
}

// link has all links like this one.
func (n *night) link(l sim.Link) {
	n.net.SetLink(n.at[0], n.at[1], l)
	n.net.SetLink(n.at[1], n.at[0], l)
}

// clearLink is a link that loses nothing.
var clearLink = sim.Link{Latency: 10 * time.Microsecond}

// cut has nothing arrive in some darkness until heal.
func (n *night) cut(d darkness) {
	if d.both {
		n.link(sim.Link{Loss: 1})
		return
	}
	n.net.SetLink(n.at[d.from], n.at[1-d.from], sim.Link{Loss: 1})
}

func (n *night) heal() { n.link(clearLink) }

// stream is numbered messages one way, each of a length of its own.
type stream struct {
	ep         uct.Endpoint
	sent, came uint64
	wrong      int
}

func lengthOf(n uint64) int { return int(n*37) % 6000 }

// send sends the next messages until that number, or as far as there is room.
func (s *stream) send(until uint64) ucs.Status {
	for s.sent < until {
		p, st := s.ep.ReserveAM(1, s.sent, lengthOf(s.sent))
		if st != ucs.OK {
			return st
		}
		for i := range p {
			p[i] = byte(s.sent) + byte(i)
		}
		s.ep.CommitAM(len(p))
		s.sent++
	}
	return ucs.OK
}

// take takes a message.
func (s *stream) take(d *uct.Desc, p []byte) {
	if d.Header != s.came || len(p) != lengthOf(s.came) {
		s.wrong++
	}
	for i := range p {
		if p[i] != byte(s.came)+byte(i) {
			s.wrong++
		}
	}
	s.came++
}

// streams opens a stream each way, of which the first message has arrived.
func (n *night) streams() (all [2]*stream) {
	ends := [2]*end{n.a, n.b}
	for i, e := range ends {
		ep, err := e.NewEndpoint(ends[1-i].address())
		require.NoError(n, err)
		s := &stream{ep: ep}
		all[i], ends[1-i].onMessage = s, s.take
		n.until(func() bool { return s.send(1) == ucs.OK && s.came == 1 })
	}
	return all
}

// whole sends both streams up to that many messages, and wants them to arrive once
// and in order, without a failure.
func (n *night) whole(all [2]*stream, total uint64) {
	n.Helper()
	n.until(func() bool {
		there, back := all[0].send(total), all[1].send(total)
		require.Empty(n, n.a.failures)
		require.Empty(n, n.b.failures)
		require.Subset(n, []ucs.Status{ucs.OK, ucs.NoResource}, []ucs.Status{there, back})
		return all[0].came == total && all[1].came == total
	})
	require.Zero(n, all[0].wrong+all[1].wrong, "out of order, twice or damaged")
	n.drop(all)
}

// drop closes both streams; nothing is left of them.
func (n *night) drop(all [2]*stream) {
	for _, s := range all {
		s.ep.Close()
	}
	n.until(func() bool { return len(n.a.byLocalID)+len(n.b.byLocalID) == 0 })
	require.Zero(n, n.a.retained+n.b.retained)
}

// darkness is who does not hear whom.
type darkness struct {
	name string
	from int
	both bool
}

// darknesses are all that there are; where one goroutine does everything, the race
// detector needs but one.
func darknesses() []darkness {
	all := []darkness{{"there", 0, false}, {"back", 1, false}, {"both ways", 0, true}}
	if race.Enabled {
		return all[:1]
	}
	return all
}

// TestBlackout: connections outlive ten seconds in which nothing comes through, in
// either or in one direction, with what they are by default. Soon after, all has
// arrived, once and in order.
func TestBlackout(t *testing.T) {
	for _, d := range darknesses() {
		t.Run(d.name, func(t *testing.T) {
			n := nightfall(t)
			all := n.streams()
			n.until(func() bool { all[0].send(1500); all[1].send(1500); return all[0].came > 1000 })
			began := n.net.Now()
			n.cut(d)
			n.net.At(began.Add(10*time.Second), func(ucs.Time) { n.heal() })
			n.whole(all, 3000)
			took := n.net.Now().Sub(began)
			require.Greater(t, took, 10*time.Second)
			require.Less(t, took, 10*time.Second+timeoutOf(n.a.timeoutCode))
		})
	}
}

// TestImpatientInBlackout: those that are told to wait for less end by name, on both
// sides, and others are made when the link is back.
func TestImpatientInBlackout(t *testing.T) {
	for _, d := range darknesses() {
		t.Run(d.name, func(t *testing.T) {
			n := nightfall(t, "UCX_RC_TIMEOUT=200ms", "UCX_RC_RETRY_COUNT=3", "UCX_RC_KEEPALIVE_INTERVAL=1ms")
			all := n.streams()
			began := n.net.Now()
			n.cut(d)
			all[0].send(500)
			n.until(func() bool { return len(n.a.failures) > 0 })
			require.Less(t, n.net.Now().Sub(began), 10*time.Second)
			n.failed(all)
			n.heal()
			n.a.failures, n.b.failures = nil, nil
			n.whole(n.streams(), 1000)
		})
	}
}

// TestFifthLost: with a fifth of all packets lost, in both directions, and what
// connections are by default, none ends: probes go again more often than retries.
func TestFifthLost(t *testing.T) {
	n := nightfall(t)
	all := n.streams()
	bad := clearLink
	bad.Loss, bad.Duplicate, bad.Reorder, bad.Jitter = 0.2, 0.02, 0.05, 100*time.Microsecond
	n.link(bad)
	n.whole(all, 500)
}

// TestPartition: where the link never comes back, in either or in one direction,
// both ends learn it, by name, also the one that only listens.
func TestPartition(t *testing.T) {
	for _, d := range darknesses() {
		t.Run(d.name, func(t *testing.T) {
			n := nightfall(t, "UCX_RC_KEEPALIVE_INTERVAL=1ms")
			all := n.streams()
			n.cut(d)
			all[0].send(10)
			n.failed(all)
		})
	}
}

// TestPartitionWhileConnecting: where one direction is dead from the start, who
// connects learns it by name, and who is asked keeps nothing. Later it goes.
func TestPartitionWhileConnecting(t *testing.T) {
	for _, d := range darknesses() {
		t.Run(d.name, func(t *testing.T) {
			n := nightfall(t, "UCX_RC_CONNECT_TIMEOUT=500ms", "UCX_RC_CONNECT_RETRY=5ms")
			n.cut(d)
			ep, err := n.a.NewEndpoint(n.b.address())
			require.NoError(t, err)
			require.Equal(t, ucs.NoResource, ep.AMUint64(1, 1, 1))
			n.until(func() bool { return len(n.a.failures) > 0 && len(n.b.byLocalID) == 0 })
			require.Equal(t, ep, n.a.failures[0].Endpoint)
			require.ErrorIs(t, n.a.failures[0].Err, ucs.ErrPeerFailed)
			require.Empty(t, n.b.failures, "nothing came of it")
			ep.Close()
			n.heal()
			n.a.failures = nil
			n.whole(n.streams(), 100)
		})
	}
}

// failed waits until both ends have failed, and wants the reason.
func (n *night) failed(all [2]*stream) {
	n.Helper()
	n.until(func() bool { return len(n.a.failures) > 0 && len(n.b.failures) > 0 })
	told := 0
	for i, e := range []*end{n.a, n.b} {
		require.Len(n, e.failures, 1)
		f := e.failures[0]
		require.Equal(n, all[i].ep, f.Endpoint)
		require.NotZero(n, f.RxConn, "and who sent by it")
		require.ErrorIs(n, f.Err, ucs.ErrPeerFailed)
		if strings.Contains(f.Err.Error(), verbs.WCRetryExcErr.String()) {
			told++
		}
		require.Equal(n, ucs.PeerFailed, all[i].send(1<<20))
	}
	require.Positive(n, told, "%v, %v", n.a.failures[0].Err, n.b.failures[0].Err)
	require.Zero(n, all[0].wrong+all[1].wrong)
	n.drop(all)
}
