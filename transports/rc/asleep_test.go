package rc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
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

// TestFlushAsleep: a flush waits for what goes by a queue pair that was left.
func TestFlushAsleep(t *testing.T) {
	for _, whole := range []bool{false, true} {
		a, b, to := proposesSleep(t)
		mem, err := b.d.Allocate(8, uct.MemRemote)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, mem.Close()) })
		key, err := a.d.UnpackKey(mem.AppendKey(nil))
		require.NoError(t, err)
		a.events = nil
		require.Equal(t, ucs.InProgress, to.GetBcopy(make([]byte, 8), nic.AddressOf(mem.Bytes()), key, 1))
		b.leave()
		until(t, func() bool { return a.sees(func() bool { return to.out == nil }) }, b)
		flush := func() uct.Status { return to.Flush(uct.FlushRemote, 2) }
		if whole {
			flush = func() uct.Status { return a.Flush(2) }
		}
		require.Equal(t, ucs.InProgress, flush(), "nothing has ended yet")
		until(t, func() bool { return len(a.events) == 2 }, a, b)
		require.Equal(t, []uct.Event{{Token: 1}, {Token: 2}}, a.events)
		require.Equal(t, ucs.OK, flush())
	}
}
