package soft

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/verbstest"
)

func TestConformanceInproc(t *testing.T) { verbstest.Run(t, inprocFixture) }
func TestConformanceSim(t *testing.T)    { verbstest.Run(t, simFixture) }

// TestConformanceAdapter: the account of an adapter changes nothing that a program observes.
// All queue pairs without a thread domain share one uUAR, and a thread domain drops all
// locks of posts.
func TestConformanceAdapter(t *testing.T) {
	f := inprocFixture
	f.Open = func(t testing.TB, needs verbstest.Needs) *verbstest.Fabric {
		return openInprocAs(t, Config{Adapter: &MLX5{TotalUUARs: "2", LowLatencyUUARs: "0", NoQPLock: true}}, needs)
	}
	verbstest.Run(t, f)
}

// TestConformanceThreads and TestConformanceSimThreads: the same where each queue pair has an engine of its own.
func TestConformanceThreads(t *testing.T) {
	f := inprocFixture
	f.ThreadDomains = true
	verbstest.Run(t, f)
}

func TestConformanceSimThreads(t *testing.T) {
	f := simFixture
	f.ThreadDomains = true
	verbstest.Run(t, f)
}

func TestGateAllocsInproc(t *testing.T) { verbstest.Gates(t, inprocFixture) }

var (
	inprocFixture = verbstest.Fixture{
		Name: "soft-inproc", Can: verbstest.Threads | verbstest.Background | verbstest.Packets | verbstest.Forgery,
		Open: openInproc,
	}
	simFixture = verbstest.Fixture{Name: "soft-sim", Can: verbstest.Packets | verbstest.Forgery, Open: openSim}
)

// opened opens the provider's first device.
func opened(t testing.TB, p *Provider) verbs.Context {
	infos, err := p.Devices()
	require.NoError(t, err)
	c, err := p.Open(infos[0])
	require.NoError(t, err)
	return c
}

// openReal opens two devices with c. Where a case looks at packets or forges them,
// they pass a fault layer, which serialises them on every link.
func openReal(t testing.TB, c Config, needs verbstest.Needs) *verbstest.Fabric {
	f := &verbstest.Fabric{}
	var filter atomic.Pointer[func(verbstest.Packet) verbstest.Verdict]
	if race.Enabled && needs&(verbstest.Background|verbstest.Threads) == 0 {
		c.Engine = EngineInline // the detector does not see that a socket orders one-sided accesses
	}
	for i := range f.Devices {
		if needs&(verbstest.Packets|verbstest.Forgery) != 0 {
			c.Faults = &Faults{Hook: func(p *PacketInfo) Verdict {
				judge := filter.Load()
				if judge == nil || p.Received {
					return Verdict{}
				}
				v := (*judge)(verbstest.Packet{From: i, Packet: p.Packet})
				return Verdict{Drop: v.Drop, Duplicate: v.Copies > 0, Corrupt: v.Corrupt, Delay: v.Delay}
			}}
		}
		f.Devices[i] = opened(t, New(c))
	}
	f.Filter = func(judge func(verbstest.Packet) verbstest.Verdict) {
		if judge == nil {
			filter.Store(nil)
			return
		}
		filter.Store(&judge)
	}
	return f
}

func openInproc(t testing.TB, needs verbstest.Needs) *verbstest.Fabric {
	return openInprocAs(t, Config{}, needs)
}

func openInprocAs(t testing.TB, c Config, needs verbstest.Needs) *verbstest.Fabric {
	sw := NewSwitch()
	c.Link, c.Switch = LinkInproc, sw
	f := openReal(t, c, needs)
	f.Inject = func(to int, b []byte, m verbstest.Manner) {
		from, dest := f.Devices[1-to].(*device).fabricAddr(), f.Devices[to].(*device).fabricAddr()
		if m == verbstest.Spoofed {
			from = verbstest.Stranger
		}
		sw.faultFabric.Send(from, dest, verbstest.Seal(from, dest, b, m))
	}
	return f
}

func openSim(t testing.TB, _ verbstest.Needs) *verbstest.Fabric {
	s := verbstest.NewSimulated()
	f := s.Fabric()
	for i, a := range s.Addrs {
		f.Devices[i] = opened(t, New(Config{Fabric: s, Addr: a.Addr(), Port: a.Port()}))
	}
	return f
}
