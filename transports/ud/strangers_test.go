package ud

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// ask has s, whose side answers nothing meanwhile, ask b for a flow in the name of an
// interface.
func (n *node) ask(t *testing.T, b *node, from address, flow uint32) {
	n.askAs(t, b, from, flow, versionWord(0))
}

// askAs asks with the version and the features in word.
func (n *node) askAs(t *testing.T, b *node, from address, flow uint32, word uint64) {
	p, err := n.getPeer(&b.self)
	require.NoError(t, err)
	h := arq.Header{A: uint64(arq.Control)<<6 | uint64(arq.Connect) | uint64(flow)<<8, B: word, C: b.self.name}
	was := n.postedID
	for ; n.postedID == was; n.pollSendCQ() {
		n.sendControl(p, &h, from.appendBody(nil))
		n.flushPosts()
	}
}

// inside runs what touches the interface's own state.
func (n *node) inside(do func()) {
	n.EnterWait()
	defer n.Leave()
	do()
}

// TestConnectInTheNameOfAnother: what names an address that it did not come from has no
// answer.
func TestConnectInTheNameOfAnother(t *testing.T) {
	ns := nodes(t, loopback(), 2)
	a, b := ns[0], ns[1]
	a.inside(func() {
		for name, forge := range map[string]func(*nic.Address){
			"port":       func(p *nic.Address) { p.Port.LID ^= 1 },
			"address":    func(p *nic.Address) { p.Port.GID = verbs.GIDOf(netip.MustParseAddr("127.0.0.77")) },
			"queue pair": func(p *nic.Address) { p.QPN++ },
		} {
			from := a.self.Address
			forge(&from)
			garbage := b.counter("garbage")
			a.ask(t, b, addressOf(from), 5)
			until(t, func() bool { return b.counter("garbage") > garbage || b.counter("accepted") > 0 }, b)
			require.Zero(t, b.counter("accepted"), name)
		}
		b.inside(func() { require.Zero(t, b.postedID) })
		a.ask(t, b, a.self, 5)
		until(t, func() bool { return b.counter("accepted") == 1 }, b)
	})
}

// TestNameOfAnotherPeer: a stranger that gives itself the name of a peer does not take its
// place.
func TestNameOfAnotherPeer(t *testing.T) {
	ns := nodes(t, loopback(), 3)
	a, b, honest := ns[0], ns[1], ns[2]
	e := connect(t, honest, b)
	until(t, func() bool { return e.AMUint64(1, 1, 1) == ucs.OK }, b, honest)
	until(t, func() bool { return len(b.got) == 1 }, b, honest)
	want, forged := honest.self.Address, a.self.Address
	name, mine := want.Name(), forged.Name()
	for i := range forged.Worker {
		forged.Worker[i] ^= name[i] ^ mine[i]
	}
	require.Equal(t, name, forged.Name())
	a.inside(func() {
		refused := b.counter("refused")
		a.ask(t, b, addressOf(forged), 5)
		until(t, func() bool { return b.counter("refused") > refused || b.counter("accepted") > 1 }, b)
	})
	until(t, func() bool { return e.AMUint64(1, 1, 1) == ucs.OK }, b, honest)
	until(t, func() bool { return len(b.got) == 2 }, b, honest)
}

// TestConnectFlood: flows by which nothing comes are few, and a peer that means it
// connects meanwhile.
func TestConnectFlood(t *testing.T) {
	ns := nodes(t, loopback(), 3)
	a, b, honest := ns[0], ns[1], ns[2]
	a.inside(func() {
		flow := uint32(1)
		flood := func() bool {
			for range 16 {
				a.ask(t, b, a.self, flow)
				flow++
			}
			return b.counter("connects_passed_over") > 100
		}
		until(t, flood, b)
		b.inside(func() {
			require.LessOrEqual(t, b.halfOpen.Len(), 256)
			require.Equal(t, b.halfOpen.Len(), len(receivers(b)))
			require.Len(t, b.peersByName, 1)
			require.Len(t, b.ahs, 1)
		})
		before := ucs.Now()
		e := connect(t, honest, b)
		until(t, func() bool { flood(); return e.AMUint64(1, 2, 3) == ucs.OK }, b, honest)
		until(t, func() bool { flood(); return len(b.got) == 1 }, b, honest)
		require.Less(t, ucs.Now().Sub(before), 10*time.Second) // milliseconds, where the machine is idle
		b.inside(func() {
			require.Len(t, b.ahs, 2)
			require.Equal(t, b.halfOpen.Len()+1, len(receivers(b)))
			for _, r := range receivers(b) {
				if r.Tag&halfOpen != 0 {
					b.evictHalfOpen(r)
				}
			}
			require.Zero(t, b.halfOpen.Len())
			require.Len(t, receivers(b), 1)
			require.Len(t, b.ahs, 1, "of the honest peer")
		})
		require.Empty(t, b.fails)
	})
}
