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
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
	"github.com/goucx/goucx/verbs/wire"
	"github.com/goucx/goucx/wireup/machine"
)

// loses says which packets of a device are lost; the zero value loses none.
type loses struct {
	atomic.Pointer[func(p *soft.PacketInfo) bool]
}

// packets has those lost of which is says so.
func (l *loses) packets(is func(p *soft.PacketInfo) bool) { l.Store(&is) }

func (l *loses) hook(p *soft.PacketInfo) soft.Verdict {
	is := l.Load()
	return soft.Verdict{Drop: is != nil && !p.Received && (*is)(p)}
}

// drainedWord tells the word that a pair is drained from other packets.
func drainedWord(p *soft.PacketInfo) bool {
	b := p.Packet.Payload
	return p.Op == wire.UDSendOnly && len(b) >= connMsgMinLen && b[0] == connFormat.Version && msgFlags(b[connMsgOffFlags])&flagDrained != 0
}

// leaves is two ends and a connection, by which a has sent a message to b, and which it
// can leave.
type leaves struct {
	*testing.T
	ends     [2]*end
	loses    [2]loses // of what each end sends
	to, from *ep      // of a, and of b
	sent     uint64
}

func newLeaves(t *testing.T, env ...string) *leaves {
	l := &leaves{T: t}
	sw := soft.NewSwitch()
	for i := range l.ends {
		faults := &soft.Faults{Hook: l.loses[i].hook}
		l.ends[i] = newEndWith(t, Component(func(_ *config.Set, log *zap.Logger) []verbs.Provider {
			return []verbs.Provider{soft.New(soft.Config{Link: soft.LinkInproc, Switch: sw, Faults: faults, Log: log})}
		}), byte(i+1), settingsOf(t, env...))
	}
	u, err := l.ends[0].NewEndpoint(l.ends[1].address())
	require.NoError(t, err)
	l.to = u.(*ep)
	l.send(1)
	l.until(func() bool { return len(l.ends[1].got) == 1 })
	l.from = l.ends[1].Slots[0]
	l.until(func() bool { return l.ends[0].sees(l.to.M.Quiescent) && l.ends[1].sees(l.from.M.Quiescent) })
	return l
}

func (l *leaves) until(cond func() bool) {
	l.Helper()
	until(l, cond, l.ends[:]...)
}

// send sends numbered messages until that many were.
func (l *leaves) send(total uint64) {
	l.Helper()
	l.until(func() bool {
		for l.sent < total && l.to.AMUint64(1, l.sent, 0) == ucs.OK {
			l.sent++
		}
		return l.sent == total
	})
}

// halves gives the numbers of the queue pairs that the ends use.
func (l *leaves) halves() (a, b verbs.QPN) {
	l.ends[0].inside(func() { a = l.to.qps[0].local.qpn })
	l.ends[1].inside(func() { b = l.from.qps[0].local.qpn })
	return a, b
}

// leave has both ends leave the pair, as far as a can do it.
func (l *leaves) leave() {
	l.Helper()
	l.ends[0].inside(func() { l.to.step(machine.Event{Kind: machine.EventSuspend}) })
	l.until(func() bool { return l.ends[0].sees(func() bool { return l.to.txQueue == nil && len(l.to.qps) == 0 }) })
}

// buried waits until nothing lingers.
func (l *leaves) buried() {
	l.Helper()
	l.until(func() bool {
		for _, e := range l.ends {
			if e.sees(func() bool { return len(e.draining)+e.numQPs > 0 }) {
				return false
			}
		}
		return true
	})
}

// arrived wants all messages to have come, in order, and nothing to have failed.
func (l *leaves) arrived() {
	l.Helper()
	l.until(func() bool { return len(l.ends[1].got) == int(l.sent) })
	for i, d := range l.ends[1].got {
		require.EqualValues(l, i, d.Header)
	}
	require.Empty(l, append(l.ends[0].failures, l.ends[1].failures...))
}

// TestLeftPairCutOff: where the last messages of a pair that was left do not arrive, the
// sender is told, though it uses the pair no more.
func TestLeftPairCutOff(t *testing.T) {
	l := newLeaves(t, "UCX_RC_TIMEOUT=100ms", "UCX_RC_RETRY_COUNT=1")
	_, half := l.halves()
	l.loses[0].packets(func(p *soft.PacketInfo) bool { return p.Dest == half && p.Op != wire.Acknowledge })
	began := ucs.Now()
	l.send(5)
	l.leave()
	l.until(func() bool {
		require.Less(t, ucs.Now().Sub(began), 10*time.Second)
		return len(l.ends[0].failures) == 1
	})
	fail := l.ends[0].failures[0]
	require.Same(t, l.to, fail.Endpoint)
	require.ErrorIs(t, fail.Err, ucs.ErrPeerFailed)
	require.ErrorContains(t, fail.Err, verbs.WCRetryExcErr.String())
	require.Equal(t, ucs.PeerFailed, l.to.AMUint64(1, 5, 0))
	l.until(func() bool { return len(l.ends[1].failures) == 1 })
	require.ErrorIs(t, l.ends[1].failures[0].Err, ucs.ErrPeerFailed)
	require.Len(t, l.ends[1].got, 1)
	l.buried()
}

// TestLeftPairUnheard: who has left a pair answers there for as long as its peer may
// repeat, since that one takes it for dead else.
func TestLeftPairUnheard(t *testing.T) {
	l := newLeaves(t, "UCX_RC_TIMEOUT=1s")
	half, _ := l.halves()
	l.send(5)
	var marker verbs.PSN // each message before it is a packet
	l.ends[0].inside(func() { marker = (l.to.qps[0].local.psn + verbs.PSN(l.to.txQueue.tail)) & (1<<24 - 1) })
	l.loses[1].packets(func(p *soft.PacketInfo) bool {
		return p.Dest == half && p.Op == wire.Acknowledge && p.PSN == marker
	})
	l.leave()
	l.until(func() bool { return l.ends[1].sees(func() bool { return len(l.ends[1].draining) == 1 }) })
	later := ucs.Now().Add(drainInterval + 200*time.Millisecond)
	l.until(func() bool { return later.Before(ucs.Now()) })
	for _, e := range l.ends {
		require.True(t, e.sees(func() bool { return len(e.draining) == 1 }))
	}
	l.loses[1].Store(nil)
	l.send(10)
	l.arrived()
	l.leave()
	l.buried()
	l.arrived()
	l.to.Close()
}

// TestLeftPairsGo: pairs that were left are given back as soon as both ends know that
// all has arrived.
func TestLeftPairsGo(t *testing.T) {
	l := newLeaves(t)
	took := time.Minute
	for n := range uint64(5) {
		l.send(n + 2)
		l.arrived()
		l.until(func() bool { return l.ends[0].sees(l.to.M.Quiescent) && l.ends[1].sees(l.from.M.Quiescent) })
		began := ucs.Now()
		l.leave()
		l.buried()
		took = min(took, ucs.Now().Sub(began))
	}
	require.Less(t, took, drainInterval)
	l.arrived()
	l.to.Close()
}

// TestDrainedLost: an end that has not heard that a pair is drained asks, and where there
// is no answer closes its half when the peer repeats nothing any more.
func TestDrainedLost(t *testing.T) {
	for _, c := range []struct {
		name string
		lost int32
		env  []string
	}{
		{"first", 1, nil},
		{"all", 1 << 30, []string{"UCX_RC_TIMEOUT=50ms", "UCX_RC_RETRY_COUNT=3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLeaves(t, c.env...)
			var lost atomic.Int32
			l.loses[1].packets(func(p *soft.PacketInfo) bool { return drainedWord(p) && lost.Add(1) <= c.lost })
			began := ucs.Now()
			l.send(5)
			l.leave()
			l.buried()
			require.Greater(t, ucs.Now().Sub(began), drainInterval)
			require.Positive(t, lost.Load())
			l.send(10)
			l.arrived()
			l.to.Close()
		})
	}
}

// TestDrainedOfNoSense: that word about what there is not changes nothing, and is
// answered to who asks about a connection of its own alone.
func TestDrainedOfNoSense(t *testing.T) {
	l := newLeaves(t)
	a, b := l.ends[0], l.ends[1]
	good := connMsg{
		msg:   machine.Msg{Worker: a.worker, From: l.to.M.Conn(), To: l.from.M.Conn(), Pair: l.to.M.TxPair()},
		flags: flagDrained | flagWantReply, from: a.self,
	}
	for _, c := range []struct {
		name string
		made func(n *connMsg)
		said uint64
	}{
		{"of a pair that there is not", func(n *connMsg) { n.msg.Pair = 77 }, 1},
		{"and unasked", func(n *connMsg) { n.msg.Pair, n.flags = 77, flagDrained }, 0},
		{"of no pair", func(n *connMsg) { n.msg.Pair, n.flags = machine.End, flagDrained }, 0},
		{"of a connection that there is not", func(n *connMsg) { n.msg.To++ }, 0},
		{"of somebody else's", func(n *connMsg) { n.from = peerAt(&nic.Address{Worker: [16]byte{9}}) }, 0},
		{"and a hello", func(n *connMsg) { n.msg.Kind, n.msg.To, n.msg.From = machine.MsgOpen, 0, 1 }, 0},
	} {
		n := good
		c.made(&n)
		b.inside(func() {
			said := b.stats.Value(statConnMsgs)
			b.dispatchConnMsg(&n)
			require.Equal(t, c.said, b.stats.Value(statConnMsgs)-said, c.name)
			require.False(t, l.from.qps[0].peerDrained, c.name)
			require.Len(t, b.byLocalID, 1, c.name)
		})
	}
	b.inside(func() {
		b.dispatchConnMsg(&good)
		require.True(t, l.from.qps[0].peerDrained, "it may come before this end has left the pair")
	})
	l.leave()
	l.buried()
	l.send(3)
	l.arrived()
	l.to.Close()
}
