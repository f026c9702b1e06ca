package verbstest

import (
	"net/netip"
	"time"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs/wire"
)

// simLatency is a packet's way in the simulated network.
const simLatency = 2 * time.Microsecond

// Stranger is an address that is no device's.
var Stranger = netip.MustParseAddrPort("127.0.0.9:33000")

// Simulated is a simulated network with time of its own, on which fixtures of
// devices that take such a network can be built: a datagram is one packet, from
// BTH to ICRC. It can do Packets and Forgery.
//
// Concurrency: one goroutine at a time.
type Simulated struct {
	*sim.Net
	// Addrs are the addresses of the two devices.
	Addrs  [2]netip.AddrPort
	filter func(Packet) Verdict
}

// NewSimulated makes a network without devices.
func NewSimulated() *Simulated {
	s := &Simulated{Net: sim.New(1)}
	s.SetDefault(sim.Link{Latency: simLatency})
	for i := range s.Addrs {
		s.Addrs[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}), uint16(33000+i))
	}
	return s
}

// Fabric is the network as the suite sees it, without the devices.
func (s *Simulated) Fabric() *Fabric {
	return &Fabric{
		Now:     s.Now,
		Advance: func(d time.Duration) { s.RunUntil(s.Now().Add(d)) },
		Filter:  func(f func(Packet) Verdict) { s.filter = f },
		Inject: func(to int, b []byte, m Manner) {
			from := s.Addrs[1-to]
			if m == Spoofed {
				from = Stranger
			}
			s.Net.Send(from, s.Addrs[to], Seal(from, s.Addrs[to], b, m))
		},
	}
}

// Attach has recv called with what arrives at an address.
func (s *Simulated) Attach(at netip.AddrPort, recv func(netip.AddrPort, []byte, ucs.Time)) {
	s.Net.Attach(at, recv)
}

// Send has the filter decide on a packet.
func (s *Simulated) Send(from, to netip.AddrPort, b []byte) {
	var v Verdict
	if p, fault := wire.Parse(b); s.filter != nil && fault == wire.FaultNone {
		side := 0
		if from == s.Addrs[1] {
			side = 1
		}
		v = s.filter(Packet{From: side, Packet: p})
	}
	if v.Drop {
		return
	}
	b = append([]byte{}, b...)
	if v.Corrupt {
		b[len(b)/2] ^= 4
	}
	for range v.Copies + 1 {
		if v.Delay > 0 {
			s.At(s.Now().Add(v.Delay), func(ucs.Time) { s.Net.Send(from, to, b) })
			continue
		}
		s.Net.Send(from, to, b)
	}
}

// Seal is b, from the BTH to the padding, with the ICRC of a packet between these
// addresses, or a wrong one.
func Seal(from, to netip.AddrPort, b []byte, m Manner) []byte {
	b = append(append([]byte{}, b...), 0, 0, 0, 0)
	if len(b) >= wire.BTHLen+wire.ICRCLen {
		wire.NewPrefix(from, to).Seal(b, 0)
	}
	if m == Damaged {
		b[len(b)-1] ^= 0x10
	}
	return b
}
