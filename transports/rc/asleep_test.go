package rc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup/machine"
)

// proposesSleep gives two connected ends, of which a has proposed to sleep: b answers
// when it is left.
func proposesSleep(t *testing.T) (a, b *end, to *ep) {
	c := Component(inproc())
	a, b = newEnd(t, c, 1), newEnd(t, c, 2)
	u, err := a.NewEndpoint(b.address(), 0)
	require.NoError(t, err)
	to = u.(*ep)
	until(t, func() bool { return to.AMUint64(1, 0, 0) == ucs.OK }, a, b)
	flushed(t, a, to)
	until(t, func() bool {
		return a.sees(to.m.Settled) && b.sees(func() bool { return b.eps[0].m.Settled() && !b.eps[0].busy() })
	}, a, b)
	b.enterWait()
	a.inside(func() { to.step(machine.Event{Kind: machine.Sleep}) })
	return a, b, to
}

// TestReservedAsleep: a message whose memory was reserved before the async goroutine
// heard that the peer sleeps is not lost.
func TestReservedAsleep(t *testing.T) {
	a, b, to := proposesSleep(t)
	p, st := to.ReserveAM(2, 7, 5)
	require.Equal(t, ucs.OK, st)
	b.leave()
	until(t, func() bool { return b.sees(func() bool { return b.eps[0].out == nil }) }, b)
	for end := ucs.Now().Add(20 * time.Millisecond); ucs.Now() < end && !a.sees(func() bool { return to.out == nil }); {
		time.Sleep(time.Millisecond)
	}
	to.CommitAM(copy(p, "hello"))
	until(t, func() bool { return len(b.got) == 2 }, a, b)
	require.Equal(t, "hello", string(b.data[1]))
	// Asleep after all, and nothing is kept.
	until(t, func() bool { return a.sees(func() bool { return to.out == nil && a.tx.Free() == a.txTotal }) }, a, b)
}
