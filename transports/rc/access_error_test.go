package rc

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
	"github.com/goucx/goucx/verbs/wire"
	"github.com/goucx/goucx/wireup/machine"
)

// refuser is a connection from a to b, with a key of memory of b's that is closed.
type refuser struct {
	a, b *end
	to   uct.Endpoint
	key  uct.RKey
	addr uint64

	hook   atomic.Pointer[func(p *soft.PacketInfo) soft.Verdict] // of packets that are sent
	naks   atomic.Int32                                          // that were sent
	closes atomic.Int32                                          // the same of CLOSEs for a refused request
}

// newRefuser makes the connection over each link in turn.
func newRefuser(t *testing.T, run func(t *testing.T, r *refuser), settings ...string) {
	for _, link := range []string{soft.LinkInproc, soft.LinkUDP} {
		t.Run(link, func(t *testing.T) {
			r := &refuser{}
			sw, faults := soft.NewSwitch(), &soft.Faults{Hook: r.packet}
			c := Component(func(_ *config.Set, log *zap.Logger) []verbs.Provider {
				return []verbs.Provider{soft.New(soft.Config{Link: link, Switch: sw, Addr: local, Faults: faults, Log: log})}
			})
			set := settingsOf(t, append(settings, "UCX_RC_TIMEOUT=2s", "UCX_RC_KEEPALIVE_INTERVAL=inf")...)
			r.a, r.b = newEndWith(t, c, 1, set), newEndWith(t, c, 2, set)
			var err error
			r.to, err = r.a.NewEndpoint(r.b.address())
			require.NoError(t, err)
			mem, err := r.b.d.Allocate(4096, uct.MemRemote)
			require.NoError(t, err)
			r.key, err = r.a.d.UnpackKey(mem.AppendKey(nil))
			require.NoError(t, err)
			r.addr = nic.AddressOf(mem.Bytes())
			until(t, func() bool { return r.to.AMUint64(1, 2, 3) == ucs.OK }, r.a, r.b)
			until(t, func() bool { return r.to.Flush(uct.FlushRemote, 9) == ucs.InProgress }, r.a)
			until(t, func() bool { return len(r.b.got) == 1 && len(r.a.events) == 1 }, r.a, r.b)
			r.a.events = nil
			require.NoError(t, mem.Close())
			run(t, r)
		})
	}
}

func (r *refuser) packet(p *soft.PacketInfo) soft.Verdict {
	switch {
	case p.Received:
		return soft.Verdict{}
	case p.Op == wire.Acknowledge && p.Syndrome == wire.NakRemoteAccess:
		r.naks.Add(1)
	case isRefusal(p):
		r.closes.Add(1)
	}
	if hook := r.hook.Load(); hook != nil {
		return (*hook)(p)
	}
	return soft.Verdict{}
}

func (r *refuser) lose(which func(p *soft.PacketInfo) bool) {
	hook := func(p *soft.PacketInfo) soft.Verdict { return soft.Verdict{Drop: which(p)} }
	r.hook.Store(&hook)
}

func isRefusal(p *soft.PacketInfo) bool {
	return p.Op == wire.UDSendOnly && msgFlags(p.Packet.Payload[connMsgOffFlags])&flagAccessError != 0
}

// denied requires that a's connection fails with the refusal, far sooner than by the
// retries of its queue pair and without b's Progress, and b's connection because of it.
func (r *refuser) denied(t *testing.T, start ucs.Time) {
	t.Helper()
	until(t, func() bool { return len(r.a.failures) == 1 }, r.a)
	require.ErrorIs(t, r.a.failures[0].Err, ucs.ErrRemoteAccess)
	took := ucs.Now().Sub(start)
	require.Less(t, took, 8*time.Second, "the retries of the queue pair were used up")
	t.Logf("failed after %v", took)
	acknowledged := func() bool { return len(r.b.accessErrors.unacked) == 0 }
	until(t, func() bool { return len(r.b.failures) == 1 && r.b.sees(acknowledged) }, r.a, r.b)
	require.Less(t, ucs.Now().Sub(start), 12*time.Second, "the CLOSE was given up: it had no acknowledgement")
	require.ErrorIs(t, r.b.failures[0].Err, ucs.ErrPeerFailed)
	require.NotErrorIs(t, r.b.failures[0].Err, ucs.ErrRemoteAccess)
}

// TestRefusedNAKLost: a request is refused and the NAK is lost. The responder's interface
// sends a CLOSE, and retransmits it until the requester has acknowledged it. The program
// of the responder does not call its worker meanwhile.
func TestRefusedNAKLost(t *testing.T) {
	for name, lost := range map[string]int32{"CLOSE arrives": 0, "two CLOSEs are lost": 2} {
		t.Run(name, func(t *testing.T) {
			newRefuser(t, func(t *testing.T, r *refuser) {
				r.lose(func(p *soft.PacketInfo) bool {
					return p.Syndrome == wire.NakRemoteAccess || isRefusal(p) && r.closes.Load() <= lost
				})
				start := ucs.Now()
				require.Equal(t, ucs.InProgress, r.to.GetBcopy(make([]byte, 8), r.addr, r.key, 1))
				r.denied(t, start)
				require.Equal(t, []uct.Event{{Token: 1, Status: ucs.RemoteAccess}}, r.a.events)
				require.NotZero(t, r.naks.Load())
				require.Greater(t, r.closes.Load(), lost)
			})
		})
	}
}

// TestRefusedAcknowledged: the acknowledgements of the CLOSE are lost for a while. The
// CLOSE is retransmitted until one arrives, and not longer; the requester, whose
// connection is gone meanwhile, acknowledges each.
func TestRefusedAcknowledged(t *testing.T) {
	newRefuser(t, func(t *testing.T, r *refuser) {
		r.lose(func(p *soft.PacketInfo) bool {
			return p.Syndrome == wire.NakRemoteAccess || p.Op == wire.UDSendOnly && !isRefusal(p) && r.closes.Load() < 4
		})
		start := ucs.Now()
		require.Equal(t, ucs.InProgress, r.to.GetBcopy(make([]byte, 8), r.addr, r.key, 1))
		until(t, func() bool { return len(r.a.failures) == 1 }, r.a)
		r.to.Close()
		until(t, r.a.alone, r.a)
		r.denied(t, start)
		require.GreaterOrEqual(t, r.closes.Load(), int32(4))
	})
}

// TestRefusedAskedAfter: the NAK and the CLOSE are lost, and the requester sends another
// message about the connection before the CLOSE is retransmitted. The answer has the
// reason.
func TestRefusedAskedAfter(t *testing.T) {
	newRefuser(t, func(t *testing.T, r *refuser) {
		r.lose(func(p *soft.PacketInfo) bool {
			return p.Syndrome == wire.NakRemoteAccess || isRefusal(p) && r.closes.Load() == 1
		})
		start := ucs.Now()
		require.Equal(t, ucs.InProgress, r.to.GetBcopy(make([]byte, 8), r.addr, r.key, 1))
		until(t, func() bool { return r.closes.Load() == 1 })
		e := r.to.(*ep)
		r.a.EnterWait()
		e.sendMsg(machine.Msg{Kind: machine.MsgReady, Worker: r.a.worker, From: e.M.Conn(), To: e.M.Remote()})
		r.a.Leave()
		r.denied(t, start)
	}, "UCX_RC_CONNECT_RETRY=1m")
}

// TestRefusedWhileSending: the responder has a request of its own under way, which the
// device flushes with the queue pair. It learns of the refusal by that, too.
func TestRefusedWhileSending(t *testing.T) {
	newRefuser(t, func(t *testing.T, r *refuser) {
		back, err := r.b.NewEndpoint(r.a.address())
		require.NoError(t, err)
		r.lose(func(p *soft.PacketInfo) bool { return p.Syndrome == wire.NakRemoteAccess || p.Op == wire.SendOnly })
		require.Equal(t, ucs.OK, back.AMUint64(1, 2, 3))
		start := ucs.Now()
		require.Equal(t, ucs.InProgress, r.to.GetBcopy(make([]byte, 8), r.addr, r.key, 1))
		until(t, func() bool { return len(r.b.failures) == 1 }, r.b)
		r.denied(t, start)
		require.Same(t, back, r.b.failures[0].Endpoint)
	})
}

// TestRefusedBehindRead: the peer does not answer for 50 ms, in which a Put, a Get and a
// Put by a closed key are posted. The requester repeats its requests meanwhile.
func TestRefusedBehindRead(t *testing.T) {
	newRefuser(t, func(t *testing.T, r *refuser) {
		open, err := r.b.d.Allocate(64, uct.MemRemote)
		require.NoError(t, err)
		key, err := r.a.d.UnpackKey(open.AppendKey(nil))
		require.NoError(t, err)
		addr := nic.AddressOf(open.Bytes())
		start := ucs.Now()
		goesOn := start.Add(50 * time.Millisecond)
		hook := func(*soft.PacketInfo) soft.Verdict { return soft.Verdict{Delay: max(0, goesOn.Sub(ucs.Now()))} }
		r.hook.Store(&hook)
		require.Equal(t, ucs.OK, r.to.PutShort(make([]byte, 8), addr, key))
		require.Equal(t, ucs.InProgress, r.to.GetBcopy(make([]byte, 8), addr, key, 1))
		require.Equal(t, ucs.OK, r.to.PutShort(make([]byte, 8), r.addr, r.key))
		r.denied(t, start)
		require.Len(t, r.a.events, 1)
		require.Contains(t, []ucs.Status{ucs.OK, ucs.RemoteAccess}, r.a.events[0].Status)
		require.NoError(t, open.Close())
	})
}
