package rc

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
	"github.com/goucx/goucx/wireup/machine"
)

// TestNextPairWaitsForTheOld: a connection that slept goes on in another pair. What
// comes there is delivered after what is still under way in the pair before, also where
// the sender does not wait for that.
func TestNextPairWaitsForTheOld(t *testing.T) {
	var lost atomic.Uint32 // the queue pair to which nothing comes through
	faults := &soft.Faults{Hook: func(p *soft.PacketInfo) soft.Verdict {
		return soft.Verdict{Drop: !p.Received && uint32(p.Dest) == lost.Load()}
	}}
	sw := soft.NewSwitch()
	c := Component(func(_ *config.Set, log *zap.Logger) []verbs.Provider {
		return []verbs.Provider{soft.New(soft.Config{Link: soft.LinkInproc, Switch: sw, Faults: faults, Log: log})}
	})
	a, b := newEnd(t, c, 1), newEnd(t, c, 2)
	u, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	to, sent := u.(*ep), uint64(0)
	send := func(until uint64) bool {
		for sent < until && to.AMUint64(1, sent, sent) == ucs.OK {
			sent++
		}
		return sent == until
	}
	until(t, func() bool { return send(1) && len(b.got) == 1 }, a, b)
	from := b.Slots[0]
	settled := func() bool { return to.M.Quiescent() }
	until(t, func() bool { return a.sees(settled) && b.sees(func() bool { return from.M.Quiescent() }) }, a, b)
	b.inside(func() { lost.Store(uint32(from.qps[0].local.qpn)) })
	until(t, func() bool { return send(5) }, a)
	a.inside(func() { to.step(machine.Event{Kind: machine.EventSuspend}) })
	until(t, func() bool { return a.sees(func() bool { return to.txQueue == nil }) }, a, b)
	until(t, func() bool {
		a.inside(func() { to.oldTxQueue = nil; to.updateFastPath() }) // as a peer that does not wait for it
		return send(10)
	}, a, b)
	until(t, func() bool {
		return len(b.got) > 1 || b.sees(func() bool { return len(from.qps) == 2 && len(from.qps[1].outOfOrder) == 5 })
	}, a, b)
	lost.Store(0)
	until(t, func() bool { return len(b.got) == 10 }, a, b)
	for i := range b.got {
		require.EqualValues(t, i, b.got[i].Header)
	}
	require.Empty(t, append(a.failures, b.failures...))
	to.Close()
}
