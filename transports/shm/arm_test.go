package shm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// readable waits up to d for the iface's event descriptor.
func readable(t *testing.T, f *iface, d time.Duration) bool {
	p := []unix.PollFd{{Fd: int32(f.EventFD()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, int(d.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		require.NoError(t, err)
		return n > 0
	}
}

// arm progresses until there is nothing to do, and arms.
func arm(t *testing.T, f *iface) {
	for range 100_000 {
		if s := f.Arm(uct.EventRecv); s != ucs.Busy {
			require.Equal(t, ucs.OK, s)
			return
		}
		f.Progress(64)
	}
	t.Fatal("never idle")
}

func TestMessageWakesASleeper(t *testing.T) {
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	e := connectTest(t, a, b)
	e.AMShort(1, 0, nil)
	until(t, func() bool { return rb.n == 1 && e.peerInbox != nil }, a, b)
	for i := range 50 {
		arm(t, b)
		require.False(t, readable(t, b, 0), "nothing came")
		e.AMUint64(1, 0, uint64(i))
		require.True(t, readable(t, b, patience))
		n := rb.n
		require.Equal(t, ucs.Busy, b.Arm(uct.EventRecv), "a message waits")
		until(t, func() bool { return rb.n == n+1 }, b)
	}
}

func TestFirstContactWakesASleeper(t *testing.T) {
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	arm(t, b)
	e := connectTest(t, a, b)
	e.AMShort(1, 0, nil)
	require.True(t, readable(t, b, patience))
	until(t, func() bool { return rb.n == 1 }, b) // the sender has not progressed yet
	arm(t, b)
	e.AMShort(1, 0, nil) // first it learns where the inbox is, then it rings
	require.True(t, readable(t, b, patience))
}

func TestRoomWakesASender(t *testing.T) {
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	e := connectTest(t, a, b)
	e.AMShort(1, 0, nil)
	until(t, func() bool { return rb.n == 1 && e.peerInbox != nil }, a, b)
	for e.AMShort(1, 0, nil) == ucs.OK {
	}
	require.Equal(t, ucs.OK, e.PendingAdd(1))
	arm(t, a)
	require.False(t, readable(t, a, 0))
	b.Progress(1)
	require.True(t, readable(t, a, patience), "one message's room is told at once")
	require.Equal(t, ucs.Busy, a.Arm(uct.EventSend))
}

// TestNoWakeUpIsLost has two ifaces ping-pong, sleeping after each message,
// with the net of periodic scans off.
func TestNoWakeUpIsLost(t *testing.T) {
	rounds := 20_000
	if testing.Short() {
		rounds = 2_000
	}
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	ab, ba := connectTest(t, a, b), connectTest(t, b, a)
	side := func(f *iface, r *recorder, e *ep, first int) bool {
		for i := range rounds {
			if i&1 == first {
				if e.AMUint64(1, 0, uint64(i)) != ucs.OK {
					return false
				}
				continue
			}
			for want := i/2 + 1; r.n < want; {
				if f.Progress(64) == 0 && f.Arm(uct.EventRecv) == ucs.OK && !readable(t, f, patience) {
					return false
				}
			}
		}
		return true
	}
	done := make(chan bool)
	go func() { done <- side(b, &rb, ba, 1) }()
	require.True(t, side(a, &ra, ab, 0), "a wake-up of a was lost")
	require.True(t, <-done, "a wake-up of b was lost")
}
