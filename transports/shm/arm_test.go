package shm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/conn"
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
	until(t, func() bool { return rb.n == 1 && e.peerPage != nil }, a, b)
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
	until(t, func() bool { return rb.n == 1 && e.peerPage != nil }, a, b)
	for e.AMShort(1, 0, nil) == ucs.OK {
	}
	require.Equal(t, ucs.OK, e.PendingAdd(1))
	arm(t, a)
	require.False(t, readable(t, a, 0))
	b.Progress(1)
	require.False(t, readable(t, a, 0), "while messages are left, one's room is not worth a wake-up")
	for range b.layout.Cells / 4 {
		b.Progress(1)
	}
	require.True(t, readable(t, a, patience), "a quarter's room is told at once")
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

// TestSleeperHearsWhatAnotherGoroutineDid: calls between Arm and the sleep bring
// work that only Progress does, or that the armed iface did not know of.
func TestSleeperHearsWhatAnotherGoroutineDid(t *testing.T) {
	for name, do := range map[string]func(c *couple){
		"failure": func(c *couple) { c.a.FailLater(c.ab, conn.PeerFailed("test")) },
		"close":   func(c *couple) { c.ab.Close() },
		"check":   func(c *couple) { c.ab.Check(0) },
		"page":    func(c *couple) { require.NoError(t, c.a.addPage()) },
		"pending": func(c *couple) {
			for c.ab.AMShort(1, 0, nil) == ucs.OK {
			}
			require.Equal(t, ucs.OK, c.ab.PendingAdd(1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCouple(t)
			arm(t, c.a)
			require.False(t, readable(t, c.a, 0))
			do(c)
			require.True(t, readable(t, c.a, 0))
		})
	}
}

// TestSenderThatCannotSignal leaves the sleeper armed, so that another wakes it.
func TestSenderThatCannotSignal(t *testing.T) {
	c := newCouple(t)
	other := openTest(t, new(recorder))
	e := connectTest(t, other, c.b)
	require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
	until(t, func() bool { return c.rb.n == 2 && e.peerPage != nil }, other, c.b)
	arm(t, c.b)
	require.NoError(t, c.ab.peerEvent.Close())
	require.Equal(t, ucs.OK, c.ab.AMShort(1, 0, nil))
	require.False(t, readable(t, c.b, 0))
	require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
	require.True(t, readable(t, c.b, 0))
	c.ab.Close()
}

// TestNumbersOfSleepsDiffer: a waker that was slow between its signal and taking
// the sleep's number back leaves the next sleep alone.
func TestNumbersOfSleepsDiffer(t *testing.T) {
	c := newCouple(t)
	seen := map[uint32]bool{}
	for range 3 {
		arm(t, c.b)
		n := *c.b.pages[0].armed
		require.NotZero(t, n)
		require.False(t, seen[n])
		seen[n] = true
	}
	c.b.sleepID = 1<<32 - 1
	arm(t, c.b)
	require.NotZero(t, *c.b.pages[0].armed)
}

// TestNoWakeUpForRoomIsLost: one side or both, or neither, cannot put a barrier
// into the other, neither for messages nor for room.
func TestNoWakeUpForRoomIsLost(t *testing.T) {
	rounds := 400_000
	if testing.Short() {
		rounds = 20_000
	}
	for name, without := range map[string][2]uint8{"sender": {flagFence, 0}, "receiver": {0, flagFence}, "both": {flagFence, flagFence}, "neither": {}} {
		t.Run(name, func(t *testing.T) {
			var ra, rb recorder
			a, b := openTest(t, &ra), openTest(t, &rb)
			a.fenceFlag, b.fenceFlag = without[0], without[1]
			e := connectTest(t, a, b)
			require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
			until(t, func() bool { return rb.n == 1 && e.peerPage != nil }, a, b)
			require.Equal(t, without != [2]uint8{}, e.needsBarrier)
			sleepers(t, a, b, e, &ra, &rb, rounds)
		})
	}
}

// sleepers has a send as much as fits and sleep until there is room, and b take
// it and sleep until there is more.
func sleepers(t *testing.T, a, b *iface, e *ep, ra, rb *recorder, rounds int) {
	a.scanInterval, b.scanInterval = config.Forever, config.Forever
	first, sent := rb.n, 0
	ra.pending = func(ts []uct.Token) int {
		for ; sent < rounds; sent++ {
			if e.AMUint64(1, 0, 0) != ucs.OK {
				return 0
			}
		}
		return len(ts)
	}
	// sleep is true when there was something, now or after a wake-up.
	sleep := func(f *iface, over func() bool) bool {
		return f.Progress(64) > 0 || over() || f.Arm(uct.EventRecv|uct.EventSend) != ucs.OK || readable(t, f, time.Minute)
	}
	done := make(chan bool, 1)
	go func() {
		for rb.n < first+rounds {
			if !sleep(b, func() bool { return rb.n == first+rounds }) {
				done <- false
				return
			}
		}
		done <- true
	}()
	for sent < rounds {
		if e.AMUint64(1, 0, 0) == ucs.OK {
			sent++
			continue
		}
		if e.PendingAdd(1) != ucs.OK {
			continue
		}
		for e.pend.Len() > 0 {
			require.True(t, sleep(a, func() bool { return e.pend.Len() == 0 }), "the sender sleeps beside a free ring")
		}
	}
	require.True(t, <-done, "the receiver sleeps beside a message")
}
