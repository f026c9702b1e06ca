package soft

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

var testGroup = verbs.GIDOf(netip.MustParseAddr("239.77.85.1"))

// TestMulticastRacesWithClose: queue pairs join, leave and close while another one sends to the
// group without pause. A member receives datagrams, and closing ends.
func TestMulticastRacesWithClose(t *testing.T) {
	p := New(Config{Link: LinkInproc})
	a, b := newEnd(t, p, verbs.UD, 64), newEnd(t, p, verbs.UD, 4096)
	a.readyUD()
	h, err := a.pd.CreateAH(verbs.AHAttr{DGID: testGroup, Port: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
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
			assert.NoError(t, verbs.AttachMulticast(q, testGroup))
			for n := received.Load() + 20; received.Load() < n; {
				q.PostRecv([]verbs.RecvWR{{NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{b.sge(0, 256)}}})
				runtime.Gosched()
			}
			refused(t, q.Close(), ucs.ErrBusy, "1 multicast groups")
			assert.NoError(t, verbs.DetachMulticast(q, testGroup))
			assert.NoError(t, q.Close())
			refused(t, verbs.AttachMulticast(q, testGroup), ucs.ErrClosed, "239.77.85.1")
		}
	})
	stop.Store(true)
	all.Wait()
}

// TestMulticastLimits: as many queue pairs join a group as the device says, and other links say
// that they have none.
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

	u := newEnd(t, New(Config{Link: LinkUDP, Addr: localhost}), verbs.UD, 8)
	refused(t, verbs.AttachMulticast(u.qp, testGroup), ucs.ErrUnsupported, "udp")
	require.Zero(t, u.c.Attr().MaxMcastGroups)
}
