package soft

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/verbstest"
	"github.com/goucx/goucx/verbs/wire"
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

// stranger is an address that is no device's.
var stranger = netip.MustParseAddrPort("127.0.0.9:33000")

// sealed is b with the ICRC of a packet between these addresses.
func sealed(from, to netip.AddrPort, b []byte, m verbstest.Manner) []byte {
	b = append(append([]byte{}, b...), 0, 0, 0, 0)
	if len(b) >= wire.BTHLen+wire.ICRCLen {
		wire.NewPrefix(from, to).Seal(b, 0)
	}
	if m == verbstest.Damaged {
		b[len(b)-1] ^= 0x10
	}
	return b
}

// simLatency is a packet's way in the simulated network.
const simLatency = 2 * time.Microsecond

// simulated is the simulated network with a filter on it.
type simulated struct {
	*sim.Net
	addr   [2]netip.AddrPort
	filter func(verbstest.Packet) verbstest.Verdict
}

func openSim(t testing.TB, _ verbstest.Needs) *verbstest.Fabric {
	s := &simulated{Net: sim.New(1)}
	s.SetDefault(sim.Link{Latency: simLatency})
	f := &verbstest.Fabric{
		Now:     s.Now,
		Advance: func(d time.Duration) { s.RunUntil(s.Now().Add(d)) },
		Filter:  func(f func(verbstest.Packet) verbstest.Verdict) { s.filter = f },
		Inject: func(to int, b []byte, m verbstest.Manner) {
			from := s.addr[1-to]
			if m == verbstest.Spoofed {
				from = stranger
			}
			s.Net.Send(from, s.addr[to], sealed(from, s.addr[to], b, m))
		},
	}
	for i := range f.Devices {
		s.addr[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}), uint16(33000+i))
		p := New(Config{Fabric: s, Addr: s.addr[i].Addr(), Port: s.addr[i].Port()})
		f.Devices[i] = opened(t, p)
	}
	return f
}

// Send has the filter decide on a packet. See Fabric.
func (s *simulated) Send(from, to netip.AddrPort, b []byte) {
	var v verbstest.Verdict
	if p, fault := wire.Parse(b); s.filter != nil && fault == wire.FaultNone {
		side := 0
		if from == s.addr[1] {
			side = 1
		}
		v = s.filter(verbstest.Packet{From: side, Packet: p})
	}
	if v.Drop {
		return
	}
	copies := append([]byte{}, b...)
	if v.Corrupt {
		copies[len(copies)/2] ^= 4
	}
	send := func(ucs.Time) { s.Net.Send(from, to, copies) }
	for range v.Copies + 1 {
		if v.Delay > 0 {
			s.At(s.Now().Add(v.Delay), send)
			continue
		}
		send(0)
	}
}

// Attach adapts the receiver's type. See Fabric.
func (s *simulated) Attach(at netip.AddrPort, recv func(netip.AddrPort, []byte, ucs.Time)) {
	s.Net.Attach(at, recv)
}
