package rc

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

var links = map[string]func() nic.Providers{
	"inproc": inproc,
	"udp":    func() nic.Providers { return loopback },
}

// TestConnectsWhileComputing: who never looks is connected to nevertheless, and a
// peer's put, get and atomic reach its memory, and messages its receives.
func TestConnectsWhileComputing(t *testing.T) {
	for name, link := range links {
		for _, procs := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/%d", name, procs), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				c := Component(link())
				a, b := newEnd(t, c, 1), newEnd(t, c, 2)
				compute(t)
				to, err := a.NewEndpoint(b.address())
				require.NoError(t, err)
				reachMemory(t, a, b, to)
				const n = 100
				for i := range uint64(n) {
					until(t, func() bool { return to.AMUint64(1, i, i) == ucs.OK }, a)
				}
				flushed(t, a, to)
				require.Empty(t, b.got, "it has not looked")
				until(t, func() bool { return len(b.got) == n }, a, b)
				require.Empty(t, append(a.failures, b.failures...))
				to.Close()
			})
		}
	}
}

// reachMemory has a use memory of b's, and drives a alone.
func reachMemory(t *testing.T, a, b *end, to uct.Endpoint) {
	mem, err := b.d.Allocate(4096, uct.MemRemote)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mem.Close()) })
	key, err := a.d.UnpackKey(mem.AppendKey(nil))
	require.NoError(t, err)
	addr := nic.AddressOf(mem.Bytes())
	until(t, func() bool { return to.PutUint64(40, addr, key) == ucs.OK }, a)
	got := make([]byte, 8)
	ended := len(a.events)
	until(t, func() bool { _, st := to.Fetch64(uct.AtomicAdd, 2, 0, addr, key, 1); return st == ucs.InProgress }, a)
	until(t, func() bool { return to.GetBcopy(got, addr, key, 2) == ucs.InProgress }, a)
	until(t, func() bool { return len(a.events) == ended+2 }, a)
	require.EqualValues(t, 40, a.events[ended].Value)
	require.EqualValues(t, 42, binary.LittleEndian.Uint64(got))
}

// flushed waits until all that went by the endpoint has arrived, and drives a alone.
func flushed(t *testing.T, a *end, to uct.Endpoint) {
	ended := len(a.events)
	until(t, func() bool { return to.Flush(uct.FlushRemote, 99) == ucs.InProgress }, a)
	until(t, func() bool { return len(a.events) > ended }, a)
}

// TestConnectsFromBothSidesWhileOneComputes: hellos that cross, and those that got no
// answer before, need nobody's Progress but the one side's.
func TestConnectsFromBothSidesWhileOneComputes(t *testing.T) {
	for name, link := range links {
		for _, workers := range [][2]byte{{1, 2}, {2, 1}} {
			t.Run(fmt.Sprintf("%s/%d", name, workers[0]), func(t *testing.T) {
				c := Component(link())
				a, b := newEnd(t, c, workers[0]), newEnd(t, c, workers[1])
				back, err := b.NewEndpoint(a.address())
				require.NoError(t, err)
				require.Equal(t, ucs.NoResource, back.AMUint64(1, 1, 1), "it says hello, and looks no more")
				to, err := a.NewEndpoint(b.address())
				require.NoError(t, err)
				reachMemory(t, a, b, to)
				// The connection is ready on the side that has not looked, too.
				require.Eventually(t, func() bool { return b.sees(func() bool { return back.(*ep).txQueue != nil }) },
					time.Minute, time.Millisecond)
				require.Equal(t, ucs.OK, back.AMUint64(1, 1, 1))
				until(t, func() bool { return len(a.got) == 1 }, a)
				require.Equal(t, []int{1, 1}, []int{a.Active(), b.Active()}, "one connection")
				to.Close()
				back.Close()
			})
		}
	}
}

// TestSectionRepeats: what a computing side says and gets no answer to is said again,
// and its time-out ends.
func TestSectionRepeats(t *testing.T) {
	c := Component(loopback)
	set := settingsOf(t, "UCX_RC_CONNECT_RETRY=1ms", "UCX_RC_CONNECT_TIMEOUT=20ms") // 4 messages at least
	a, b := newEndWith(t, c, 1, set), newEnd(t, c, 2)
	to, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	b.inside(func() { require.NoError(t, b.ud.qp.Close()) }) // a peer that hears nothing
	require.Equal(t, ucs.NoResource, to.AMUint64(1, 1, 1))
	require.Eventually(t, func() bool { return a.sees(func() bool { return to.(*ep).Life.Over() }) }, time.Minute, time.Millisecond)
	require.GreaterOrEqual(t, a.stats.Value(statConnMsgs), uint64(4))
	require.Empty(t, a.failures, "it is told in Progress")
	until(t, func() bool { return len(a.failures) == 1 }, a)
	require.ErrorIs(t, a.failures[0].Err, ucs.ErrPeerFailed)
}

// TestConnectTimeoutIsTime: a peer that does not answer has UCX_RC_CONNECT_TIMEOUT, also
// where the process comes to retransmit far more seldom than UCX_RC_CONNECT_RETRY sets.
func TestConnectTimeoutIsTime(t *testing.T) {
	const limit, busy = 500 * time.Millisecond, 20 * time.Millisecond
	c := Component(loopback)
	set := settingsOf(t, "UCX_RC_CONNECT_RETRY=1ms", "UCX_RC_CONNECT_TIMEOUT=500ms")
	a, b := newEndWith(t, c, 1, set), newEnd(t, c, 2)
	to, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	b.inside(func() { require.NoError(t, b.ud.qp.Close()) }) // a peer that receives nothing
	began, rounds := time.Now(), 0
	require.Equal(t, ucs.NoResource, to.AMUint64(1, 1, 1))
	for ; len(a.failures) == 0; rounds++ {
		a.inside(func() { time.Sleep(busy) }) // neither the worker nor the async goroutine retransmits
		for range 2 * servicePasses {
			a.Progress(64)
		}
	}
	took := time.Since(began)
	require.ErrorIs(t, a.failures[0].Err, ucs.ErrPeerFailed)
	require.GreaterOrEqual(t, took, limit)
	require.Less(t, rounds, 4*int(limit/busy), "it counts tries: there are 500")
}

// TestSleeperIsWoken: what the async goroutine takes from the descriptor of who sleeps
// on it wakes nevertheless.
func TestSleeperIsWoken(t *testing.T) {
	for name, link := range links {
		t.Run(name, func(t *testing.T) {
			c := Component(link())
			a, b := newEnd(t, c, 1), newEnd(t, c, 2)
			back, err := b.NewEndpoint(a.address())
			require.NoError(t, err)
			a.EnterWait() // it hears nothing now
			require.Equal(t, ucs.OK, back.PendingAdd(7))
			until(t, func() bool { st := b.Arm(uct.EventRecv); return st == ucs.OK || st == ucs.InProgress }, b)
			a.Leave()
			var stop atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				for !stop.Load() {
					a.Progress(64)
					runtime.Gosched()
				}
			}()
			require.Eventually(t, func() bool { return b.sees(func() bool { return back.(*ep).txQueue != nil }) },
				time.Minute, time.Millisecond)
			stop.Store(true)
			<-done
			require.True(t, readable(b.EventFD()), "b can send now")
			until(t, func() bool { return b.sees(func() bool { return back.(*ep).pend.Len() == 0 }) }, b)
			require.False(t, b.wake.Raised())
			back.Close()
		})
	}
}

func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}
