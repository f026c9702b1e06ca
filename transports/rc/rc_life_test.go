package rc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
	"github.com/goucx/goucx/wireup/machine"
)

// limited gives in-process devices with few of everything.
func limited(l soft.Limits) nic.Providers {
	sw := soft.NewSwitch()
	return func(_ *config.Set, log *zap.Logger) []verbs.Provider {
		return []verbs.Provider{soft.New(soft.Config{Link: soft.LinkInproc, Switch: sw, Limits: l, Log: log})}
	}
}

// TestNoQueuePair: where the device has no more, the endpoint that wants one fails
// by name, the hello of a peer is refused, and others go on.
func TestNoQueuePair(t *testing.T) {
	c := Component(limited(soft.Limits{QPs: 2})) // one is for connection messages
	a, b, other := newEnd(t, c, 1), newEnd(t, c, 2), newEnd(t, c, 3)
	first, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	until(t, func() bool { return first.AMUint64(1, 1, 1) == ucs.OK }, a, b)
	second, err := a.NewEndpoint(other.address())
	require.NoError(t, err)
	second.AMUint64(1, 1, 1)
	until(t, func() bool { return len(a.failures) == 1 }, a, b, other)
	require.Same(t, second, a.failures[0].Endpoint)
	require.ErrorIs(t, a.failures[0].Err, ucs.ErrNoResource)

	third, err := other.NewEndpoint(a.address())
	require.NoError(t, err)
	third.AMUint64(1, 1, 1)
	until(t, func() bool { return len(other.failures) == 1 }, a, b, other)
	require.ErrorIs(t, other.failures[0].Err, ucs.ErrUnreachable, "it was refused")
	require.EqualValues(t, 1, a.stats.Value(statRefused))

	until(t, func() bool { return first.AMUint64(1, 1, 1) == ucs.OK }, a, b, other)
	until(t, func() bool { return len(b.got) == 2 }, a, b, other)
	first.Close()
	second.Close()
	third.Close()
}

// TestRunsOutOfReceives: a receiver that keeps all and posts none is slow, not dead:
// the sender waits, and all arrives when it goes on.
func TestRunsOutOfReceives(t *testing.T) {
	c := Component(inproc())
	a, b := newEnd(t, c, 1), newEnd(t, c, 2)
	to, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	until(t, func() bool { return to.AMUint64(1, 0, 0) == ucs.OK }, a, b)
	const n = 5000
	for sent := 1; sent < n; {
		st := to.AMUint64(1, uint64(sent), 0)
		if st == ucs.OK {
			sent++
			continue
		}
		require.Equal(t, ucs.NoResource, st)
		a.Progress(64)
		if sent > b.recvTarget { // only now does the receiver look
			b.Progress(64)
		}
	}
	until(t, func() bool { return len(b.got) == n }, a, b)
	for i := range b.got {
		require.EqualValues(t, i, b.got[i].Header)
	}
	require.Empty(t, a.failures)
	to.Close()
}

// TestGarbage: datagrams of any content are dropped and counted.
func TestGarbage(t *testing.T) {
	c := Component(inproc())
	a, b := newEnd(t, c, 1), newEnd(t, c, 2)
	to := b.self
	ah, err := a.pd.CreateAH(a.d.AH(a.port, &to.port))
	require.NoError(t, err)
	good := someNote()
	good.from = a.self
	for i := range 3 * udRecvs {
		good.msg.Kind, good.msg.To = machine.MsgKind(i%40), uint64(i) // of connections that there are not
		a.inside(func() {
			a.sendConnMsg(&good, &to, ah)
			slot := a.ud.next % udSends
			if a.ud.inFlight[slot] {
				return
			}
			w := verbs.SendWR{ID: uint64(slot), Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, QPN: to.iface.qpn, QKey: to.iface.qkey, AH: ah.ID()}
			clear(a.ud.tx.Bytes(slot))
			w.SG[0] = a.ud.tx.SGE(slot, i%connMsgMaxLen)
			if k, _ := a.ud.qp.PostSend([]verbs.SendWR{w}); k == 1 {
				a.ud.inFlight[slot] = true
				a.ud.next++
			}
		})
		a.Progress(64)
		b.Progress(64)
	}
	require.NoError(t, ah.Close())
	require.NotZero(t, b.stats.Value(statGarbage))
	ep, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	until(t, func() bool { return ep.AMUint64(1, 1, 1) == ucs.OK }, a, b)
	until(t, func() bool { return len(b.got) == 1 }, a, b)
	require.Empty(t, a.failures)
	ep.Close()
}

// TestMessageOfNoSense: a message between the ends that fits nowhere fails that
// connection, on both sides.
func TestMessageOfNoSense(t *testing.T) {
	s := newBench(t)
	s.a.inside(func() { s.ep.txQueue.postControl(99, 0) })
	until(t, func() bool { return len(s.a.failures) == 1 && len(s.b.failures) == 1 }, s.a, s.b)
	require.ErrorIs(t, s.b.failures[0].Err, ucs.ErrPeerFailed)
	require.ErrorIs(t, s.a.failures[0].Err, ucs.ErrPeerFailed)
	require.EqualValues(t, 1, s.b.stats.Value(statGarbage))
	s.ep.Close()
	s.back.Close()
}

// TestCloseDelivers: what was accepted arrives though its interface closes at once.
func TestCloseDelivers(t *testing.T) {
	c := Component(inproc())
	a, b := newEnd(t, c, 1), newEnd(t, c, 2)
	to, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	until(t, func() bool { return to.AMUint64(1, 0, 0) == ucs.OK }, a, b)
	n := uint64(1)
	for to.AMUint64(1, n, 0) == ucs.OK {
		n++
	}
	require.NoError(t, a.Close())
	until(t, func() bool { return len(b.failures) == 1 }, b)
	require.Len(t, b.got, int(n))
	require.Equal(t, uct.Failure{RxConn: b.got[0].RxConn}, b.failures[0])
}

// TestSleepersHearOfTheEnd: an interface that closes tells the peers of connections
// that sleep, too.
func TestSleepersHearOfTheEnd(t *testing.T) {
	c := Component(loopback)
	set := settingsOf(t, "UCX_RC_MAX_PAIRS=1")
	a, b, other := newEndWith(t, c, 1, set), newEndWith(t, c, 2, set), newEndWith(t, c, 3, set)
	for _, to := range []*end{b, other} {
		ep, err := a.NewEndpoint(to.address())
		require.NoError(t, err)
		until(t, func() bool { return ep.AMUint64(1, 1, 1) == ucs.OK }, a, b, other)
	}
	until(t, func() bool {
		return a.sees(func() bool { return a.Slots[0].txQueue == nil || a.Slots[1].txQueue == nil })
	}, a, b, other)
	require.NoError(t, a.Close())
	until(t, func() bool { return len(b.failures)+len(other.failures) == 2 }, b, other)
	for _, e := range []*end{b, other} {
		require.Equal(t, []uct.Failure{{RxConn: e.got[0].RxConn}}, e.failures)
	}
}

// threadDomains returns the number of open thread domains of a device.
func threadDomains(d *nic.Domain) uint64 {
	for _, c := range d.Context().Stats().Snapshot() {
		if c.Name == "objects.td" {
			return c.Value
		}
	}
	return 0
}

// TestSingleGoroutine: an interface has the thread domains that its resources name.
func TestSingleGoroutine(t *testing.T) {
	s := newBench(t)
	infos, _ := s.a.d.Ifaces()
	for _, r := range []struct {
		uct.Resources
		tds uint64
	}{
		{uct.Resources{}, 1},
		{uct.Resources{Domain: uct.ExclusiveDomain, Spares: 1}, 2},
		{uct.Resources{Domain: uct.PairedDomain}, 1},
		{uct.Resources{Domain: uct.NoDomain, Spares: 1}, 0},
	} {
		before := threadDomains(s.a.d)
		f, err := s.a.d.OpenIface(infos[0], uct.IfaceConfig{Handler: s.a, Worker: uct.UUID{9}, Resources: r.Resources})
		require.NoError(t, err)
		require.Equal(t, before+r.tds, threadDomains(s.a.d), "%+v", r)
		require.NoError(t, f.Close())
		require.Equal(t, before, threadDomains(s.a.d))
	}
	s.ep.Close()
	s.back.Close()
}

// TestEventsTellOfDeath: the receiver of a peer that vanished without a word asks for
// a sign of life.
func TestEventsTellOfDeath(t *testing.T) {
	c := Component(inproc())
	a, b := newEndWith(t, c, 1, impatient(t)), newEndWith(t, c, 2, impatient(t))
	to, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	until(t, func() bool { return to.AMUint64(1, 0, 0) == ucs.OK }, a, b)
	until(t, func() bool { return len(b.got) == 1 }, a, b)
	e := to.(*ep)
	died := ucs.Now()
	a.inside(func() { require.NoError(t, e.txQueue.qp.Close()) }) // no farewell
	until(t, func() bool { return len(b.failures) == 1 }, b)
	require.Equal(t, b.got[0].RxConn, b.failures[0].RxConn)
	require.ErrorIs(t, b.failures[0].Err, ucs.ErrPeerFailed)
	require.Less(t, ucs.Now().Sub(died), b.attr.FailureWithin+30*time.Second)
	a.inside(func() { a.FailLater(e, errCanceled) })
	until(t, func() bool { return len(a.failures) == 1 }, a)
	to.Close()
}

// TestTalksToItself: an interface is a peer as any other, also to itself.
func TestTalksToItself(t *testing.T) {
	a := newEnd(t, Component(inproc()), 1)
	var eps []uct.Endpoint
	for range 2 {
		ep, err := a.NewEndpoint(a.address())
		require.NoError(t, err)
		eps = append(eps, ep)
	}
	for i := range uint64(100) {
		for _, ep := range eps {
			until(t, func() bool { return ep.AMUint64(1, i, i) == ucs.OK }, a)
		}
	}
	until(t, func() bool { return len(a.got) == 200 }, a)
	for _, ep := range eps {
		ep.Close()
	}
	until(t, a.alone, a)
	require.Len(t, a.failures, 2, "the end of each side that received")
}

// TestPeerFeatures: towards a peer whose address does not say that it is a soft device
// the queue pair keeps to the specification.
func TestPeerFeatures(t *testing.T) {
	a, b := newEnd(t, Component(loopback), 1), newEnd(t, Component(loopback), 2)
	for goucx, want := range map[bool]uint32{true: verbs.PeerGoucx | verbs.PeerProbe, false: 0} {
		a.inside(func() {
			to := b.self
			if to.port.Goucx = goucx; !goucx {
				to.port.LongMTU = 0
			}
			e, err := a.newEP(&to)
			require.NoError(t, err)
			p, err := a.newQP(e)
			require.NoError(t, err)
			require.NoError(t, p.connect(qpInfo{qpn: 77, psn: 1}, &e.peer.port))
			require.Equal(t, want, p.q.qp.Query().PeerFeatures)
			e.qps = append(e.qps, p)
		})
	}
}
