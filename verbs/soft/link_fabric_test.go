package soft

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// The simulator is a fabric with groups.
var _ MulticastFabric = (*sim.Net)(nil)

// come is a packet that arrived at a link.
type come struct {
	psn    verbs.PSN
	data   string
	intact bool
}

// linkEnd is a link on a network, with or without faults.
type linkEnd struct {
	link
	self   netip.AddrPort
	faults *faultLink
}

// linked makes two links on a network: what arrives at the second is kept.
func linked(net *sim.Net, faults, peerFaults *Faults) (from, to *linkEnd, got *[]come) {
	attach := func(at string, faults *Faults, handle fabricHandler) (*linkEnd, *fabricLink) {
		l := &fabricLink{fabric: net, self: netip.MustParseAddrPort(at), handle: handle}
		e := &linkEnd{link: l, self: l.self}
		if faults != nil {
			e.faults = newFaultLink(faults, l, l.self.Port(), func() {})
			e.link, l.handle = e.faults, e.faults.wrap(handle)
		}
		l.attach(nil, nil)
		return e, l
	}
	from, _ = attach("[fd00::1]:40001", faults, func(_, _ netip.AddrPort, _ []byte, _ ucs.Time) {})
	got = new([]come)
	var l *fabricLink
	to, l = attach("[fd00::2]:40002", peerFaults, func(src, dst netip.AddrPort, b []byte, _ ucs.Time) {
		var p packet
		f, _, intact := l.parse(src, dst, b, &p)
		if !intact {
			*got = append(*got, come{})
			return
		}
		if f == wire.FaultNone {
			*got = append(*got, come{p.PSN, string(p.sg[0][:p.n]), true})
		}
	})
	return from, to, got
}

func (e *linkEnd) routeTo(o *linkEnd) route {
	r, _ := e.resolve(&verbs.AHAttr{DGID: verbs.GIDOf(o.self.Addr()), DLID: o.self.Port()})
	return r
}

func TestFabricLink(t *testing.T) {
	net := sim.New(1)
	from, to, got := linked(net, nil, nil)
	r := from.routeTo(to)
	p := packet{Header: wire.Header{Opcode: wire.SendOnly, PKey: 0xffff, DestQP: 5}, nsg: 2}
	for i := range 10 {
		p.PSN, p.sg[0], p.sg[1] = verbs.PSN(i), []byte("soft")[:i%5], []byte("rnic")[:i%3]
		p.n = len(p.sg[0]) + len(p.sg[1])
		from.sendOne(&r, &p, net.Now())
	}
	require.True(t, net.Run(100))
	require.Len(t, *got, 10)
	for i, c := range *got {
		assert.Equal(t, come{verbs.PSN(i), "soft"[:i%5] + "rnic"[:i%3], true}, c)
	}

	require.NoError(t, to.close())
	from.sendOne(&r, &p, net.Now())
	require.True(t, net.Run(100))
	assert.Len(t, *got, 10)
}

// TestFabricLinkIntact wants packets refused that are broken, too short, or sent
// from another address than they say.
func TestFabricLinkIntact(t *testing.T) {
	net := sim.New(1)
	from, to, got := linked(net, nil, nil)
	r := from.routeTo(to)
	p := packet{Header: wire.Header{Opcode: wire.SendOnly, PKey: 0xffff}, n: 4, nsg: 1, sg: [verbs.MaxSGE][]byte{[]byte("data")}}

	net.SetDefault(sim.Link{Corrupt: 1})
	from.sendOne(&r, &p, net.Now())
	net.SetDefault(sim.Link{})
	forged := &fabricLink{fabric: net, self: netip.MustParseAddrPort("[fd00::1]:40002")}
	forged.sendOne(&r, &p, net.Now())
	otherFamily := netip.MustParseAddrPort("10.0.0.1:4791")
	net.Send(otherFamily, to.self, make([]byte, 100))
	for n := range 20 {
		net.Send(from.self, to.self, make([]byte, n))
	}
	require.True(t, net.Run(100))
	require.Len(t, *got, 23)
	for _, c := range *got {
		assert.False(t, c.intact)
	}
}

// TestFabricLinkFaults sends through a link whose faults hold packets back: they
// go out when poll is called in time.
func TestFabricLinkFaults(t *testing.T) {
	net := sim.New(1)
	f := &Faults{Delay: 10 * time.Microsecond, Duplicate: 0.2, Loss: 0.2, Corrupt: 0.2}
	from, to, got := linked(net, f, nil)
	r := from.routeTo(to)
	p := packet{Header: wire.Header{Opcode: wire.SendOnly, PKey: 0xffff, DestQP: 5}, nsg: 1}
	for i := range 1000 {
		p.PSN = verbs.PSN(i)
		from.sendOne(&r, &p, net.Now())
	}
	assert.Zero(t, net.Counts().Sent)
	assert.Equal(t, net.Now().Add(f.Delay), from.faults.nextDeadline())
	for from.faults.nextDeadline() != never {
		net.RunUntil(from.faults.nextDeadline())
		from.receive(nil, net.Now())
	}
	require.True(t, net.Run(10_000))
	seen := make(map[verbs.PSN]int)
	broken := 0
	for _, c := range *got {
		if c.intact {
			seen[c.psn]++
		} else {
			broken++
		}
	}
	assert.InDelta(t, 160, broken, 70)
	assert.InDelta(t, 1000*0.8*(1-0.2*0.8), len(seen), 90)
	assert.True(t, slices.ContainsFunc(*got, func(c come) bool { return seen[c.psn] == 2 }))
}

// TestFabricLinkHook has the receiver's hook drop, delay and double.
func TestFabricLinkHook(t *testing.T) {
	net := sim.New(1)
	from, to, got := linked(net, nil, &Faults{Hook: func(p *PacketInfo) Verdict {
		return map[verbs.PSN]Verdict{1: {Drop: true}, 2: {Delay: time.Second}, 3: {Duplicate: true}}[p.PSN]
	}})
	r := from.routeTo(to)
	p := packet{Header: wire.Header{Opcode: wire.SendOnly, PKey: 0xffff, DestQP: 5}}
	for i := range 5 {
		p.PSN = verbs.PSN(i)
		from.sendOne(&r, &p, net.Now())
	}
	require.True(t, net.Run(100))
	net.RunUntil(to.faults.nextDeadline())
	to.receive(nil, net.Now())
	var order []verbs.PSN
	for _, c := range *got {
		order = append(order, c.psn)
	}
	assert.Equal(t, []verbs.PSN{0, 3, 3, 4, 2}, order)
	assert.Equal(t, never, to.faults.nextDeadline())
}
