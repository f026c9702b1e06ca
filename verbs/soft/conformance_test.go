package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/verbstest"
)

func TestConformanceInproc(t *testing.T) { verbstest.Run(t, inprocFixture) }
func TestConformanceSim(t *testing.T)    { verbstest.Run(t, simFixture) }

func TestGateAllocsInproc(t *testing.T) { verbstest.Gates(t, inprocFixture) }

var (
	inprocFixture = verbstest.Fixture{
		Name: "soft-inproc", Can: verbstest.Threads | verbstest.Background,
		Open: func(t testing.TB, _ verbstest.Needs) *verbstest.Fabric {
			p := New(Config{Link: LinkInproc})
			return &verbstest.Fabric{Devices: [2]verbs.Context{opened(t, p), opened(t, p)}}
		},
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

func openSim(t testing.TB, _ verbstest.Needs) *verbstest.Fabric {
	s := verbstest.NewSimulated()
	f := s.Fabric()
	for i, a := range s.Addrs {
		f.Devices[i] = opened(t, New(Config{Fabric: s, Addr: a.Addr(), Port: a.Port()}))
	}
	return f
}
