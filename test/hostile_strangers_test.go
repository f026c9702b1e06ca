//go:build linux

package test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	packet "github.com/goucx/goucx/verbs/wire"
)

// mostMemory is how much the victim may grow under attack, in bytes.
const mostMemory = 64 << 20

// paced calls do n times a second for a while and returns how often.
func paced(n int, during time.Duration, do func()) (done int) {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		since := time.Since(began)
		if since >= during {
			return done
		}
		for due := int(since.Seconds() * float64(n)); done < due; done++ {
			do()
		}
	}
}

// roleForge asks for connections in the name of a third party, then for one in its own name.
// It prints how many datagrams came to its own queue pair.
func roleForge(p *parent) {
	var address []byte
	var third uint16
	must(fmt.Sscanf(p.hear(), "%x %d", &address, &third))
	g, s, rng := targetsOf(address)[0], newStranger(), rand.New(rand.NewPCG(1, 1))
	paced(1000, 50*time.Millisecond, func() {
		s.sendTo(&g, g.request(name{workerName(rng), s.qp.QPN(), third}, rng.Uint64()))
	})
	s.sendTo(&g, g.request(s.self(), 5))
	for began := time.Now(); s.came == 0 && time.Since(began) < patience || time.Since(began) < 2200*time.Millisecond; { // longer than the victim tries
		s.poll()
	}
	p.say(s.came)
	p.hear()
}

// TestForgedRequest: a connection request is answered to its sender only, and at most three
// times while the sender is silent.
func TestForgedRequest(t *testing.T) {
	for _, tls := range []string{"rc", "ud"} {
		t.Run(tls, func(t *testing.T) {
			overLoopback(t, tls)
			v := startVictim(t, func(c *exec.Cmd) {
				c.Env = append(c.Env, "UCX_RC_CONNECT_RETRY=1ms", "UCX_RC_CONNECT_TIMEOUT=2s")
			})
			third, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0)))
			require.NoError(t, err)
			defer third.Close() //nolint:errcheck // a socket of the test
			s := start(t, "forge")
			s.say(v.address, third.LocalAddr().(*net.UDPAddr).Port)
			came := s.number()
			require.Positive(t, came, "requests do not arrive")
			require.LessOrEqual(t, came, 3)
			v.newcomers(0)
			raw, err := third.SyscallConn()
			require.NoError(t, err)
			require.NoError(t, raw.Control(func(fd uintptr) {
				_, _, err := unix.Recvfrom(int(fd), make([]byte, 4096), unix.MSG_DONTWAIT)
				require.ErrorIs(t, err, unix.EAGAIN, "the victim sent to the third party")
			}))
		})
	}
}

// roleFlood asks for connections, 10,000 a second, each in another worker's name, from
// where it is. It answers none.
func roleFlood(p *parent) {
	var address []byte
	var during time.Duration
	must(fmt.Sscanf(p.hear(), "%x %d", &address, &during))
	g, s, rng := targetsOf(address)[0], newStranger(), rand.New(rand.NewPCG(1, 1))
	self := s.self()
	p.say("flooding")
	p.say(paced(10_000, during, func() {
		self.worker = workerName(rng)
		s.sendTo(&g, g.request(self, rng.Uint64()))
	}))
	p.hear()
}

// TestFlood: honest peers connect during and after a flood of connection requests, and the
// memory of the victim stays bounded.
func TestFlood(t *testing.T) {
	for _, tls := range []string{"rc", "ud"} {
		t.Run(tls, func(t *testing.T) {
			overLoopback(t, tls)
			v := startVictim(t)
			old := v.honest()
			old.send(t)
			before, during := v.memory(), attackTime()
			s := start(t, "flood")
			s.say(v.address, int64(during))
			s.expect("flooding")
			v.newcomers(during)
			t.Logf("%d requests in %v", s.number(), during)
			old.send(t)
			v.newcomers(0)
			require.Less(t, v.memory()-before, mostMemory)
		})
	}
}

// mutator sends what no honest device sends.
type mutator struct {
	*stranger
	rng     *rand.Rand
	targets []target
	raw     *net.UDPConn
}

func (m *mutator) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(m.rng.Uint32())
	}
	return b
}

// one sends one datagram.
func (m *mutator) one() {
	rng, g := m.rng, &m.targets[m.rng.IntN(len(m.targets))]
	switch rng.IntN(6) {
	case 0: // a request with bytes changed, cut off or added; every other has the right checksum
		b := g.request(m.self(), rng.Uint64())
		for range rng.IntN(4) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
		b = append(b[:len(b)-4], m.bytes(rng.IntN(20))...)
		if rng.IntN(4) == 0 {
			b = b[:rng.IntN(len(b)+1)]
		}
		if rng.IntN(2) == 0 {
			b = seal(b, 0)
		}
		m.sendTo(g, b)
	case 1: // any kind of connection message or packet, with the right checksum
		b := g.request(m.self(), rng.Uint64())
		if g.transport == uct.TransportRC {
			b[1], b[2] = byte(rng.IntN(16)), byte(rng.IntN(64))
			copy(b[20:], m.bytes(32))
			b = seal(b[:len(b)-4], 0)
		} else {
			copy(b, m.bytes(24))
		}
		m.sendTo(g, b)
	case 2: // noise to a queue pair
		m.sendTo(g, m.bytes(rng.IntN(pieceIs)))
	case 3: // noise to the socket
		m.write(g, m.bytes(rng.IntN(2000)))
	case 4: // a datagram with the right ICRC and Q_Key, of any length
		rest := make([]byte, rng.IntN(2000)*4+packet.ICRCLen)
		h := packet.Header{Opcode: packet.UDSendOnly, DestQP: g.qpn, PKey: 0xffff, QKey: g.qkey(), SrcQP: verbs.QPN(rng.IntN(1 << 24))}
		b := append(h.Append(nil), rest...)
		m.write(g, m.sealed(g, b))
	case 5: // a packet with the right ICRC to a queue pair near the known one
		b := make([]byte, packet.BTHLen+rng.IntN(100)+packet.ICRCLen)
		copy(b, m.bytes(len(b)))
		dest := g.qpn + verbs.QPN(rng.IntN(64)) - 32
		packet.BTH(b).Put(&packet.BTHFields{
			Opcode: packet.Opcode(rng.IntN(32)), DestQP: dest & (1<<24 - 1), PKey: 0xffff,
			PSN: verbs.PSN(rng.IntN(1 << 24)), AckReq: rng.IntN(2) == 0,
		})
		m.write(g, m.sealed(g, b))
	}
}

// sealed is a packet from the raw socket with its ICRC.
func (m *mutator) sealed(g *target, b []byte) []byte {
	packet.NewPrefix(m.raw.LocalAddr().(*net.UDPAddr).AddrPort(), netip.AddrPortFrom(loopback, g.lid)).Seal(b, 0)
	return b
}

func (m *mutator) write(g *target, b []byte) {
	_, _ = m.raw.WriteToUDPAddrPort(b, netip.AddrPortFrom(loopback, g.lid)) // the socket may have no room
}

// roleMutate sends mutated and random datagrams to the victim's device and queue pairs.
func roleMutate(p *parent) {
	var address []byte
	var during time.Duration
	var seed uint64
	must(fmt.Sscanf(p.hear(), "%x %d %d", &address, &during, &seed))
	m := &mutator{
		stranger: newStranger(), rng: rand.New(rand.NewPCG(seed, 1)), targets: targetsOf(address),
		raw: must(net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0)))),
	}
	// The victim answers a request that is right: the others differ in nothing else.
	for began := time.Now(); m.came == 0 && time.Since(began) < patience; m.poll() {
		if time.Since(began) > time.Second || m.next == 0 {
			m.sendTo(&m.targets[0], m.targets[0].request(m.self(), uint64(2*m.next+5)))
			time.Sleep(time.Millisecond)
		}
	}
	p.say(m.came > 0)
	p.say(paced(20_000, during, m.one))
	p.hear()
}

// TestMutated: random and mutated datagrams disturb neither peers that are connected nor
// new ones, and leave nothing in the victim.
func TestMutated(t *testing.T) {
	for _, tls := range []string{"rc", "ud"} {
		t.Run(tls, func(t *testing.T) {
			overLoopback(t, tls)
			v := startVictim(t)
			old := v.honest()
			old.send(t)
			before, during := v.memory(), attackTime()
			s := start(t, "mutate")
			s.say(v.address, int64(during), seedOf(t))
			require.Equal(t, "true", s.hear(), "a request that is right is not answered")
			for ended := time.Now().Add(during); time.Now().Before(ended); {
				old.send(t)
			}
			v.newcomers(0)
			t.Logf("%d datagrams", s.number())
			old.send(t)
			require.Less(t, v.memory()-before, mostMemory)
		})
	}
}
