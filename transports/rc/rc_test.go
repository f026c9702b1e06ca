package rc

import (
	"net/netip"
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
)

// inproc gives the in-process device; all of one call reach each other.
func inproc() nic.Providers {
	sw := soft.NewSwitch()
	return func(_ *config.Set, log *zap.Logger) []verbs.Provider {
		return []verbs.Provider{soft.New(soft.Config{Link: soft.LinkInproc, Switch: sw, Log: log})}
	}
}

var local = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// loopback gives the UDP device of 127.0.0.1.
func loopback(_ *config.Set, log *zap.Logger) []verbs.Provider {
	return []verbs.Provider{soft.New(soft.Config{Link: soft.LinkUDP, Addr: local, Log: log})}
}

// end is an iface under test that notes what its handler hears.
type end struct {
	*iface
	got      []uct.Desc
	data     [][]byte
	events   []uct.Event
	failures []uct.Failure
	reply    func(d *uct.Desc)
	// onMessage, where it is set, gets the messages in place of got and data.
	onMessage func(d *uct.Desc, p []byte)
}

func (e *end) HandleEvents(es []uct.Event) { e.events = append(e.events, es...) }

func (e *end) HandleAM(mem []byte, ds []uct.Desc) uint64 {
	for i := range ds {
		if e.reply != nil {
			e.reply(&ds[i])
			continue
		}
		if e.onMessage != nil {
			e.onMessage(&ds[i], mem[ds[i].Off:][:ds[i].Len])
			continue
		}
		e.got = append(e.got, ds[i])
		e.data = append(e.data, append([]byte(nil), mem[ds[i].Off:][:ds[i].Len]...))
	}
	return 0
}

func (e *end) HandlePending(ts []uct.Token) int { return len(ts) }

func (e *end) HandleFailure(f uct.Failure) { e.failures = append(e.failures, f) }

func (e *end) address() uct.Address {
	return uct.Address{Device: e.DeviceAddress(nil), Iface: e.Address(nil)}
}

// inside runs what touches the interface's own state, which the async goroutine shares.
func (e *end) inside(do func()) {
	e.EnterWait()
	defer e.Leave()
	do()
}

// sees reports what it finds there.
func (e *end) sees(what func() bool) (is bool) {
	e.inside(func() { is = what() })
	return is
}

// alone reports whether the interface has no connections.
func (e *end) alone() bool { return e.sees(func() bool { return len(e.byLocalID) == 0 }) }

func newEnd(t testing.TB, c uct.Component, worker byte) *end { return newEndWith(t, c, worker, nil) }

func newEndWith(t testing.TB, c uct.Component, worker byte, set *config.Set) *end {
	infos, refused := c.Domains(nil)
	require.Empty(t, refused)
	d, err := c.OpenDomain(infos[0], uct.DomainConfig{})
	require.NoError(t, err)
	ifs, _ := d.Ifaces()
	e := &end{}
	f, err := d.OpenIface(ifs[0], uct.IfaceConfig{Handler: e, Worker: uct.UUID{worker}, Settings: set})
	require.NoError(t, err)
	e.iface = f.(*iface)
	t.Cleanup(func() {
		require.NoError(t, f.Close())
		require.NoError(t, d.Close())
	})
	return e
}

func until(t testing.TB, cond func() bool, ends ...*end) {
	t.Helper()
	for stop := ucs.Now().Add(60 * time.Second); !cond(); {
		for _, e := range ends {
			e.Progress(64)
		}
		if stop.Before(ucs.Now()) {
			t.Fatal("not within a minute")
		}
	}
}

// TestUnusedEndpoint: an endpoint that was open before its peer connected answers by
// the peer's connection, also after the peer has closed its endpoint. One to
// whose peer another connection leads already has its own.
func TestUnusedEndpoint(t *testing.T) {
	c := Component(inproc())
	a, b := newEnd(t, c, 1), newEnd(t, c, 2)
	to, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	var back [2]uct.Endpoint
	for i := range back {
		back[i], err = b.NewEndpoint(a.address())
		require.NoError(t, err)
	}
	until(t, func() bool { return to.AMUint64(1, 2, 3) == ucs.OK }, a, b)
	until(t, func() bool { return len(b.got) == 1 }, a, b)
	until(t, func() bool { return back[0].AMUint64(1, 2, 3) == ucs.OK }, a, b)
	until(t, func() bool { return len(a.got) == 1 }, a, b)
	require.Equal(t, []int{1, 1}, []int{a.Active(), b.Active()}, "one connection")
	to.Close()
	until(t, func() bool { return len(b.failures) == 1 }, a, b)
	require.Equal(t, []uct.Failure{{RxConn: b.got[0].RxConn}}, b.failures)
	for i := range back {
		until(t, func() bool { return back[i].AMUint64(1, 2, 3) == ucs.OK }, a, b)
		until(t, func() bool { return len(a.got) == 2+i }, a, b)
		require.Equal(t, []int{1 + i, 1 + i}, []int{a.Active(), b.Active()})
	}
	require.NotEqual(t, a.got[1].RxConn, a.got[2].RxConn)
	back[0].Close()
	back[1].Close()
	until(t, func() bool { return a.alone() && b.alone() }, a, b)
}

// TestFirstMessage connects at the first message, and answers by the same
// connection.
func TestFirstMessage(t *testing.T) {
	c := Component(inproc())
	a, b := newEnd(t, c, 1), newEnd(t, c, 2)
	to, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	require.Zero(t, a.numQPs, "nothing before the first use")
	until(t, func() bool { return to.AMShort(5, 0xbeef, []byte("hello")) == ucs.OK }, a, b)
	until(t, func() bool { return len(b.got) == 1 }, a, b)
	require.Equal(t, "hello", string(b.data[0]))
	require.EqualValues(t, 0xbeef, b.got[0].Header)
	require.EqualValues(t, 5, b.got[0].ID)
	require.Equal(t, 1, b.ActiveEndpoints())
	back, err := b.NewEndpoint(a.address())
	require.NoError(t, err)
	until(t, func() bool { return back.AMUint64(1, 2, 3) == ucs.OK }, a, b)
	until(t, func() bool { return len(a.got) == 1 }, a, b)
	require.Equal(t, []int{1, 1}, []int{a.Active(), b.Active()}, "one connection")
	to.Close()
	back.Close()
	until(t, func() bool { return a.alone() && b.alone() }, a, b)
	require.Equal(t, []uct.Failure{{RxConn: b.got[0].RxConn}}, b.failures)
}
