package rc

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs/soft"
	"github.com/goucx/goucx/verbs/wire"
	"github.com/goucx/goucx/wireup/machine"
)

// TestHangUpAsleep: an interface that closes tells the peers of all connections that
// sleep, also where there are more than messages may be under way.
func TestHangUpAsleep(t *testing.T) {
	const conns = udSends + 20
	c := Component(inproc())
	b, a := newEnd(t, c, 2), newEnd(t, c, 1)
	for i := range conns {
		u, err := a.NewEndpoint(b.address())
		require.NoError(t, err)
		to := u.(*ep)
		until(t, func() bool { return to.AMUint64(1, 0, 0) == ucs.OK }, a, b)
		until(t, func() bool { return len(b.got) == i+1 }, a, b)
		until(t, func() bool {
			a.inside(func() {
				if to.requestCompletion(); to.M.Quiescent() {
					to.step(machine.Event{Kind: machine.EventSuspend})
				}
			})
			return a.sees(func() bool { return to.txQueue == nil && to.M.RxPair() == machine.None })
		}, a, b)
	}
	require.NoError(t, a.Close())
	until(t, func() bool { return len(b.failures) == conns && b.alone() }, b)
	for _, f := range b.failures {
		require.NoError(t, f.Err)
	}
}

// isHangUp reports whether p is a connection message of an interface that closes.
func isHangUp(p *soft.PacketInfo) bool {
	return p.Op == wire.UDSendOnly && msgFlags(p.Packet.Payload[connMsgOffFlags])&flagShutdown != 0
}

// TestHangUpLost: an interface closes while all packets between the queue pairs are lost,
// the hang-up and the ACKs of what the peer has sent. The first connection messages that
// replace the hang-up are lost too, or their acknowledgements. The peer learns of the
// close from a retransmission, before its queue pair has used up its retries. The
// interface stops the retransmissions at the acknowledgement.
func TestHangUpLost(t *testing.T) {
	for name, lost := range map[string]func(p *soft.PacketInfo, sent int32) bool{
		"messages":         func(p *soft.PacketInfo, sent int32) bool { return isHangUp(p) && sent <= 2 },
		"acknowledgements": func(p *soft.PacketInfo, sent int32) bool { return !isHangUp(p) && sent <= 2 },
	} {
		t.Run(name, func(t *testing.T) {
			newRefuser(t, func(t *testing.T, r *refuser) {
				aQPN, bQPN := r.a.ud.qpn, r.b.ud.qpn
				var sent, acks atomic.Int32
				hook := func(p *soft.PacketInfo) (v soft.Verdict) {
					if p.Received {
						return v
					}
					if isHangUp(p) && p.Dest == bQPN {
						sent.Add(1)
					}
					v.Drop = p.Op != wire.UDSendOnly || lost(p, sent.Load())
					if !v.Drop && p.Dest == aQPN {
						acks.Add(1)
					}
					return v
				}
				back, err := r.b.NewEndpoint(r.a.address())
				require.NoError(t, err)
				r.hook.Store(&hook)
				require.Equal(t, ucs.OK, back.AMUint64(1, 2, 3))
				require.NoError(t, r.a.Close())
				until(t, func() bool { return len(r.b.failures) == 1 }, r.b)
				require.NoError(t, r.b.failures[0].Err)
				require.Same(t, back, r.b.failures[0].Endpoint)
				require.Greater(t, sent.Load(), int32(2))
				until(t, func() bool { return acks.Load() > 0 })
			})
		})
	}
}

// TestHangUpAsleepLost: the same of a connection that sleeps.
func TestHangUpAsleepLost(t *testing.T) {
	newRefuser(t, func(t *testing.T, r *refuser) {
		e := r.to.(*ep)
		until(t, func() bool {
			r.a.inside(func() {
				if e.requestCompletion(); e.M.Quiescent() {
					e.step(machine.Event{Kind: machine.EventSuspend})
				}
			})
			return r.a.sees(func() bool { return e.txQueue == nil && e.M.RxPair() == machine.None })
		}, r.a, r.b)
		bQPN := r.b.ud.qpn
		var sent atomic.Int32
		r.lose(func(p *soft.PacketInfo) bool { return isHangUp(p) && p.Dest == bQPN && sent.Add(1) <= 2 })
		require.NoError(t, r.a.Close())
		require.Greater(t, sent.Load(), int32(2))
		until(t, func() bool { return len(r.b.failures) == 1 && r.b.alone() }, r.b)
		require.NoError(t, r.b.failures[0].Err)
	})
}
