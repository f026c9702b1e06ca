package ud

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/uct/ucttest"
)

// readable waits for n's event descriptor.
func (n *node) readable(wait time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(n.EventFD()), Events: unix.POLLIN}}
	for end := ucs.Now().Add(wait); ; {
		left := max(end.Sub(ucs.Now()), 0)
		if count, err := unix.Poll(fds, int(left.Milliseconds())); err != unix.EINTR {
			return err == nil && count == 1
		}
	}
}

// arm progresses the nodes until n is armed.
func (n *node) arm(t testing.TB, ns ...*node) {
	until(t, func() bool { return n.Arm(uct.EventRecv) == ucs.OK }, append(ns, n)...)
}

// TestArmTakesIn: what Arm takes in itself and is of no interest does not wake.
func TestArmTakesIn(t *testing.T) {
	ns := nodesWith(t, inproc(), 2, settingsOf(t, "UCX_UD_TIMER_TICK=1s")) // nothing goes again
	a, b := ns[0], ns[1]
	p := newPair(t, ns)
	quiet := 0
	for range 100 {
		a.Progress(64)
		until(t, func() bool { return a.sees(p.to.s.Quiescent) }, a, b)
		require.Equal(t, ucs.OK, p.to.Check(0)) // asks b
		if b.Arm(uct.EventRecv) == ucs.OK && !b.readable(0) {
			quiet++
		}
	}
	assert.Greater(t, quiet, 50, "an armed descriptor is readable")
}

// TestWokenWithoutMemory: a message wakes also when others lie in all memory that a
// section may use.
func TestWokenWithoutMemory(t *testing.T) {
	ns := nodes(t, inproc(), 2)
	a, b := ns[0], ns[1]
	p := newPair(t, ns)
	b.got = nil
	full := func(n int) func() bool {
		return func() bool { b.heldBufs += n; return true }
	}
	b.arm(t, a)
	b.sees(full(1000))
	defer b.sees(full(-1000))
	require.Equal(t, ucs.OK, p.to.AMUint64(1, 1, 1))
	until(t, ucttest.Seldom(func() bool { return b.sees(func() bool { return b.wake.Raised() }) }), a)
	require.True(t, b.readable(0))
	until(t, func() bool { return len(b.got) == 1 }, a, b)
	require.Empty(t, a.fails)
}
