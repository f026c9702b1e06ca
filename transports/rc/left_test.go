package rc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
	"github.com/goucx/goucx/verbs/wire"
)

// dropTo makes the link lose all packets to the queue pair on which r.b receives.
func (r *refuser) dropTo(drop func(p *soft.PacketInfo) bool) {
	var qpn verbs.QPN
	r.b.inside(func() { qpn = r.b.Slots[0].qps[0].local.qpn })
	hook := func(p *soft.PacketInfo) (v soft.Verdict) {
		v.Drop = !p.Received && p.Dest == qpn && drop(p)
		return v
	}
	r.hook.Store(&hook)
}

// TestShutdownBesideRetries: an operation runs out of retries when the peer's SHUTDOWN has arrived
// and waits to be processed. The peer has closed, not died.
func TestShutdownBesideRetries(t *testing.T) {
	newRefuser(t, func(t *testing.T, r *refuser) {
		e := r.to.(*ep)
		r.dropTo(func(p *soft.PacketInfo) bool { return p.Op != wire.Acknowledge })
		until(t, func() bool { return e.AMUint64(1, 2, 3) == ucs.OK }, r.a)
		require.NoError(t, r.b.Close())
		r.a.inside(func() {
			p := e.qps[0]
			require.NoError(t, e.Err)
			p.sendFailed(&verbs.WC{QPN: p.local.qpn, ID: uint64(p.q.tail - 1), Status: verbs.WCRetryExcErr})
		})
		until(t, func() bool { return len(r.a.failures) == 1 }, r.a)
		require.NoError(t, r.a.failures[0].Err)
		require.Same(t, e, r.a.failures[0].Endpoint)
		require.False(t, r.a.failures[0].Acked)
	})
}

// TestAcked: the failure of a peer that closed reports whether all operations were acknowledged, also
// those without a completion of their own. A flush succeeds if those before it were.
func TestAcked(t *testing.T) {
	for name, lost := range map[string]bool{"all": false, "not all": true} {
		t.Run(name, func(t *testing.T) {
			newRefuser(t, func(t *testing.T, r *refuser) {
				e, n := r.to.(*ep), len(r.b.got)
				for range 5 {
					until(t, func() bool { return e.AMUint64(1, 2, 3) == ucs.OK }, r.a)
				}
				until(t, func() bool { return len(r.b.got) == n+5 }, r.b)
				// NoResource while the async goroutine is inside
				until(t, func() bool { return e.Flush(uct.FlushRemote, 7) == ucs.InProgress }, r.a)
				if lost {
					until(t, func() bool { return len(r.a.events) == 1 }, r.a, r.b)
					r.dropTo(func(p *soft.PacketInfo) bool { return p.Op != wire.Acknowledge })
					until(t, func() bool { return e.AMUint64(1, 2, 3) == ucs.OK }, r.a)
					until(t, func() bool { return e.Flush(uct.FlushRemote, 8) == ucs.InProgress }, r.a)
				}
				require.NoError(t, r.b.Close())
				until(t, func() bool { return len(r.a.failures) == 1 }, r.a)
				require.NoError(t, r.a.failures[0].Err)
				require.Equal(t, !lost, r.a.failures[0].Acked)
				want := []uct.Event{{Token: 7}}
				if lost {
					want = append(want, uct.Event{Token: 8, Status: ucs.PeerFailed})
				}
				require.Equal(t, want, r.a.events)
			})
		})
	}
}
