package rc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/uct/ucttest"
	"github.com/goucx/goucx/wireup/machine"
)

// proposesSleep gives two connected ends, of which a has proposed to sleep: b answers
// when it is left.
func proposesSleep(t *testing.T) (a, b *end, to *ep) {
	c := Component(inproc())
	a, b = newEnd(t, c, 1), newEnd(t, c, 2)
	u, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	to = u.(*ep)
	until(t, func() bool { return to.AMUint64(1, 0, 0) == ucs.OK }, a, b)
	flushed(t, a, to)
	until(t, func() bool {
		return a.sees(to.M.Quiescent) && b.sees(func() bool { return b.Slots[0].M.Quiescent() && !b.Slots[0].hasPending() })
	}, a, b)
	b.EnterWait()
	a.inside(func() { to.step(machine.Event{Kind: machine.EventSuspend}) })
	return a, b, to
}

// TestReservedAsleep: a message whose memory was reserved before the async goroutine
// heard that the peer sleeps is not lost.
func TestReservedAsleep(t *testing.T) {
	a, b, to := proposesSleep(t)
	p, st := to.ReserveAM(2, 7, 5)
	require.Equal(t, ucs.OK, st)
	b.Leave()
	until(t, func() bool { return b.sees(func() bool { return b.Slots[0].txQueue == nil }) }, b)
	for end := ucs.Now().Add(20 * time.Millisecond); ucs.Now() < end && !a.sees(func() bool { return to.txQueue == nil }); {
		time.Sleep(time.Millisecond)
	}
	to.CommitAM(copy(p, "hello"))
	until(t, func() bool { return len(b.got) == 2 }, a, b)
	require.Equal(t, "hello", string(b.data[1]))
	// Asleep after all, and nothing is kept.
	until(t, func() bool { return a.sees(func() bool { return to.txQueue == nil && a.tx.Free() == a.txTotal }) }, a, b)
}

// readsAway leaves a with a get under way in a queue pair that is sent in no more, and
// gives where b's memory is.
func readsAway(t *testing.T) (a, b *end, to *ep, addr uint64, key uct.RKey) {
	a, b, to = proposesSleep(t)
	mem, err := b.d.Allocate(8, uct.MemRemote)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mem.Close()) })
	key, err = a.d.UnpackKey(mem.AppendKey(nil))
	require.NoError(t, err)
	addr = nic.AddressOf(mem.Bytes())
	a.events = nil
	require.Equal(t, ucs.InProgress, to.GetBcopy(make([]byte, 8), addr, key, 1))
	b.Leave()
	until(t, ucttest.Seldom(func() bool { return a.sees(func() bool { return to.txQueue == nil }) }), b)
	return a, b, to, addr, key
}

// TestOrderAwake: what goes by a new queue pair waits for what goes by the one that was
// left, as a fence asks for.
func TestOrderAwake(t *testing.T) {
	for _, waits := range []bool{false, true} {
		a, b, to, addr, key := readsAway(t)
		require.Equal(t, ucs.OK, to.Fence())
		a.inside(to.ensureConnected)
		until(t, ucttest.Seldom(func() bool { return a.sees(func() bool { return to.txQueue != nil }) }), b)
		require.Equal(t, ucs.NoResource, to.PutUint64(1, addr, key), "the get has not ended")
		if waits {
			require.Equal(t, ucs.OK, to.PendingAdd(5))
		}
		until(t, func() bool { return to.PutUint64(1, addr, key) == ucs.OK }, a, b)
		require.Equal(t, []uct.Event{{Token: 1}}, a.events)
		require.Empty(t, append(a.failures, b.failures...))
	}
}

// TestFlushAsleep: a flush waits for what goes by a queue pair that was left.
func TestFlushAsleep(t *testing.T) {
	for _, whole := range []bool{false, true} {
		a, b, to, _, _ := readsAway(t)
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

// TestCancelAsleep: what goes by a queue pair that was left has ended, too, when giving
// the endpoint up has.
func TestCancelAsleep(t *testing.T) {
	a, b, to, _, _ := readsAway(t)
	retired := func() bool { return len(a.draining) == 1 }
	a.inside(func() {
		a.ProgressDepth++
		until(t, func() bool { a.receive(1); return retired() })
		a.ProgressDepth--
	})
	require.Equal(t, ucs.InProgress, to.Flush(uct.FlushCancel, 2))
	until(t, func() bool { return len(a.failures) == 1 }, a, b)
	require.Len(t, a.events, 2)
	require.EqualValues(t, 1, a.events[0].Token, "it has ended, or the queue pair was closed")
	require.Equal(t, uct.Event{Token: 2}, a.events[1])
	require.False(t, a.sees(retired))
}

// TestSlowAsleep: a queue pair that was left is not closed while anything is under way
// there: a peer that has no receive is slow, not dead.
func TestSlowAsleep(t *testing.T) {
	a, b, to, _, _ := readsAway(t)
	a.inside(func() {
		a.ProgressDepth++
		until(t, func() bool { a.receive(1); return len(a.draining) == 1 })
		a.ProgressDepth--
		a.draining[0].retiredAt -= ucs.Time(drainTimeout)
		a.reapDraining(ucs.Now())
		require.Len(t, a.draining, 1)
	})
	until(t, func() bool { return len(a.events) == 1 && a.sees(func() bool { return len(a.draining) == 0 }) }, a, b)
	require.Equal(t, []uct.Event{{Token: 1}}, a.events)
	require.Equal(t, ucs.OK, to.Flush(uct.FlushRemote, 2))
}

// TestBrokenAsleep: where the peer refuses what goes by a queue pair that was left, what
// follows there is lost, and the connection fails.
func TestBrokenAsleep(t *testing.T) {
	a, b, to := proposesSleep(t)
	mem, err := b.d.Allocate(8, uct.MemRemote)
	require.NoError(t, err)
	key, err := a.d.UnpackKey(mem.AppendKey(nil))
	require.NoError(t, err)
	addr := nic.AddressOf(mem.Bytes())
	require.NoError(t, mem.Close())
	a.events = nil
	a.inside(func() {
		a.ProgressDepth++
		b.Leave()
		until(t, func() bool { a.receive(1); return to.M.RxPair() == machine.None }, b)
		require.Equal(t, ucs.InProgress, to.GetBcopy(make([]byte, 8), addr, key, 1))
		until(t, func() bool { a.ud.poll(udRecvs); return len(a.draining) == 1 }, b)
		a.flushPostList()
		a.ProgressDepth--
	})
	until(t, func() bool { return len(a.failures) == 1 }, a, b)
	require.ErrorIs(t, a.failures[0].Err, ucs.ErrRemoteAccess)
	require.Equal(t, []uct.Event{{Token: 1, Status: ucs.RemoteAccess}}, a.events)
}
