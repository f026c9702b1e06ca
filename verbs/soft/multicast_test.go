package soft

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// testGroup is a group of this process alone.
var testGroup = verbs.GIDOf(netip.AddrFrom4([4]byte{239, byte(rand.Uint32()), byte(rand.Uint32()), 1}))

// testGroup is testGroup, or one like it of the device's address family.
func (e *end) testGroup() verbs.GID {
	if e.device().gid.Addr().Is4() {
		return testGroup
	}
	return verbs.GID{0: 0xff, 1: 0x15, 15: 1}
}

// groupAH is an address handle of a group whose members are soft devices.
func (e *end) groupAH(group verbs.GID, hops uint8) verbs.AH {
	h, err := e.pd.CreateAH(verbs.AHAttr{DGID: group, Port: 1, HopLimit: hops, PeerFeatures: verbs.PeerGoucx})
	require.NoError(e.t, err)
	closeAtEnd(e.t, h)
	return h
}

// attach attaches the end's queue pair to a group until the end of the test.
func (e *end) attach(group verbs.GID) {
	require.NoError(e.t, verbs.AttachMulticast(e.qp, group))
	e.t.Cleanup(func() { _ = verbs.DetachMulticast(e.qp, group) })
}

// toGroup sends n bytes of the end's memory to a group.
func (e *end) toGroup(h verbs.AH, n int) {
	e.send(verbs.SendWR{
		Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{e.sge(0, n)},
		QPN: verbs.MulticastQPN, QKey: testQKey, AH: h.ID(),
	})
}

// newUD is an end with a datagram queue pair that is ready.
func newUD(t testing.TB, p verbs.Provider) *end {
	e := newEnd(t, p, verbs.UD, 4096)
	e.readyUD()
	return e
}

// TestMulticastRacesWithClose: queue pairs join, leave and close while another one sends to the
// group without pause. A member receives datagrams, and closing ends.
func TestMulticastRacesWithClose(t *testing.T) {
	overLinks(t, testMulticastRacesWithClose)
	t.Run("faults", func(t *testing.T) {
		testMulticastRacesWithClose(t, New(Config{Link: LinkInproc, Faults: &Faults{ReceiveLoss: 0.1}}))
	})
	t.Run("udp faults", func(t *testing.T) {
		testMulticastRacesWithClose(t, New(Config{Link: LinkUDP, Addr: localhost, Faults: &Faults{ReceiveLoss: 0.1}}))
	})
}

func testMulticastRacesWithClose(t *testing.T, p *Provider) {
	a, b := newEnd(t, p, verbs.UD, 64), newEnd(t, p, verbs.UD, 4096)
	a.readyUD()
	group := b.testGroup()
	h := a.groupAH(group, 0)
	var received atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		wrs := []verbs.SendWR{{
			Op: verbs.OpSend, Flags: verbs.SendInline | verbs.SendSignaled, InlineLen: 8, QPN: verbs.MulticastQPN, QKey: testQKey, AH: h.ID(),
		}}
		var wc [16]verbs.WC
		for !stop.Load() {
			a.qp.PostSend(wrs)
			a.cq.Poll(wc[:])
			for i := range max(b.cq.Poll(wc[:]), 0) {
				if wc[i].Status == verbs.WCSuccess {
					received.Add(1)
				}
			}
			runtime.Gosched()
		}
	})
	ends(t, "joining and closing", func() {
		for range 30 {
			q, err := b.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: b.cq, RecvCQ: b.cq, Caps: verbs.QPCaps{MaxRecv: 16}})
			if !assert.NoError(t, err) {
				return
			}
			o := *b
			o.qp = q
			o.readyUD()
			assert.NoError(t, verbs.AttachMulticast(q, group))
			for n := received.Load() + 20; received.Load() < n; {
				q.PostRecv([]verbs.RecvWR{{NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{b.sge(0, 256)}}})
				runtime.Gosched()
			}
			refused(t, q.Close(), ucs.ErrBusy, "1 multicast groups")
			assert.NoError(t, verbs.DetachMulticast(q, group))
			assert.NoError(t, q.Close())
			refused(t, verbs.AttachMulticast(q, group), ucs.ErrClosed, group.Addr().String())
		}
	})
	stop.Store(true)
	all.Wait()
}

// TestMulticastLimits: as many queue pairs join a group as the device says, and a Fabric without
// groups says that it has none.
func TestMulticastLimits(t *testing.T) {
	d := openTest(t, Config{})
	p, c := testPD(t, d), testCQ(t, d, verbs.CQConfig{Depth: 8})
	newQP := func() verbs.QP {
		q, err := p.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: c, RecvCQ: c})
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = verbs.DetachMulticast(q, testGroup)
			require.NoError(t, q.Close())
		})
		return q
	}
	for range d.Attr().MaxMcastAttach {
		require.NoError(t, verbs.AttachMulticast(newQP(), testGroup))
	}
	refused(t, verbs.AttachMulticast(newQP(), testGroup), ucs.ErrNoResource, "1024")

	f := newEnd(t, New(Config{Fabric: struct{ Fabric }{sim.New(1)}}), verbs.UD, 8)
	refused(t, verbs.AttachMulticast(f.qp, testGroup), ucs.ErrUnsupported, "fabric")
	require.Zero(t, f.c.Attr().MaxMcastGroups)
}
