package shmem

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

func newEvent(t *testing.T) *EventFD {
	t.Helper()
	e, err := NewEventFD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func TestEventFD(t *testing.T) {
	e := newEvent(t)
	assert.False(t, e.Drain())
	require.NoError(t, e.Signal())
	require.NoError(t, e.Signal())
	assert.True(t, e.Drain())
	assert.False(t, e.Drain())

	full := make([]byte, 8)
	for i := range full {
		full[i] = 0xff
	}
	full[0] = 0xfe // the largest count, whatever the byte order on little-endian systems
	_, err := unix.Write(e.FD(), full)
	require.NoError(t, err)
	assert.NoError(t, e.Signal(), "a full counter is raised already")
	assert.True(t, e.Drain())

	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	assert.ErrorIs(t, e.Signal(), ucs.ErrClosed)
	assert.False(t, e.Drain())
}

func newWakePipe(t *testing.T) (p *WakePipe, w *WakeWriter) {
	t.Helper()
	p, err := NewWakePipe()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	fd, err := unix.FcntlInt(uintptr(p.Share()), unix.F_DUPFD_CLOEXEC, 0) // as SCM_RIGHTS does
	require.NoError(t, err)
	w, err = OpenWakeWriter(fd)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return p, w
}

func TestWakePipe(t *testing.T) {
	p, w := newWakePipe(t)
	assert.False(t, p.Drain())
	for _, signal := range []func() error{p.Signal, w.Signal} {
		require.NoError(t, signal())
		require.NoError(t, signal())
		assert.True(t, await(p.FD(), unix.POLLIN))
		assert.True(t, p.Drain())
		assert.False(t, p.Drain())
	}
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	assert.Equal(t, -1, p.Share())
	assert.ErrorIs(t, p.Signal(), ucs.ErrClosed)
	assert.False(t, p.Drain())
	assert.NoError(t, w.Signal(), "nobody reads it any more")
	require.NoError(t, w.Close())
	assert.ErrorIs(t, w.Signal(), ucs.ErrClosed)
}

// TestWakePipeIsNotMadeBlocking: a peer that clears O_NONBLOCK of what it was passed, and
// fills or empties the pipe, blocks nobody.
func TestWakePipeIsNotMadeBlocking(t *testing.T) {
	p, w := newWakePipe(t)
	hostile, err := unix.FcntlInt(uintptr(p.Share()), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	defer CloseFDs(hostile)
	junk := make([]byte, 4096)
	for err = error(nil); err == nil; {
		_, err = unix.Write(hostile, junk)
	}
	require.ErrorIs(t, err, unix.EAGAIN)
	require.NoError(t, unix.SetNonblock(hostile, false))
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, p.Signal(), "full")
		assert.NoError(t, w.Signal(), "full")
		assert.True(t, p.Drain())
		assert.False(t, p.Drain(), "empty")
		assert.NoError(t, w.Signal())
		assert.True(t, p.Drain())
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("blocked for a minute")
	}
}

func TestOpenWakeWriterRefusesOthers(t *testing.T) {
	e := newEvent(t)
	_, err := OpenWakeWriter(e.FD())
	assert.ErrorContains(t, err, "eventfd")
	dir, err := unix.Open(t.TempDir(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer CloseFDs(dir)
	_, err = OpenWakeWriter(dir)
	assert.ErrorIs(t, err, unix.ENOTTY)
	_, err = OpenWakeWriter(-1)
	assert.Error(t, err)

	var fds [2]int
	require.NoError(t, unix.Pipe2(fds[:], unix.O_CLOEXEC))
	CloseFDs(fds[0])
	w, err := OpenWakeWriter(fds[1])
	require.NoError(t, err, "whose reader is gone")
	require.NoError(t, w.Signal())
	require.NoError(t, w.Close())
	_, err = unix.FcntlInt(uintptr(fds[1]), unix.F_GETFD, 0)
	require.ErrorIs(t, err, unix.EBADF, "the passed descriptor is closed")
}

func TestEpoll(t *testing.T) {
	ep, err := NewEpoll()
	require.NoError(t, err)
	defer func() { require.NoError(t, ep.Close()) }()
	a, b := newEvent(t), newEvent(t)
	const dataA, dataB = 1<<63 | 7, 0xffffffff
	require.NoError(t, ep.Add(a.FD(), dataA, EventIn))
	require.NoError(t, ep.Add(b.FD(), dataB, EventIn|EventEdge))
	assert.ErrorIs(t, ep.Add(a.FD(), 0, EventIn), unix.EEXIST)

	buf := make([]Event, 100) // more than one call takes
	look := func(timeoutMS int) []Event {
		n, err := ep.Wait(buf, timeoutMS)
		require.NoError(t, err)
		return buf[:n]
	}
	assert.Empty(t, look(0))
	require.NoError(t, a.Signal())
	assert.Equal(t, []Event{{Data: dataA, Events: EventIn}}, look(0))
	require.NoError(t, b.Signal())
	assert.ElementsMatch(t, []Event{{Data: dataA, Events: EventIn}, {Data: dataB, Events: EventIn}}, look(1000))
	assert.Equal(t, []Event{{Data: dataA, Events: EventIn}}, look(0), "edge is told once")
	require.NoError(t, ep.Del(a.FD()))
	assert.Empty(t, look(0))
	assert.Empty(t, look(1))
	assert.ErrorIs(t, ep.Del(a.FD()), unix.ENOENT)
	require.NoError(t, b.Signal())
	require.NoError(t, ep.Rearm(b.FD(), 5, EventIn|EventOneShot))
	assert.Equal(t, []Event{{Data: 5, Events: EventIn}}, look(0))
	assert.Empty(t, look(0), "one shot")
	require.NoError(t, ep.Rearm(b.FD(), 6, EventIn|EventOneShot))
	assert.Equal(t, []Event{{Data: 6, Events: EventIn}}, look(0), "still ready")
	assert.ErrorIs(t, ep.Rearm(a.FD(), 0, EventIn), unix.ENOENT)
	_, err = ep.Wait(nil, 0)
	assert.ErrorIs(t, err, unix.EINVAL)
	require.NoError(t, ep.Close())
	_, err = ep.Wait(buf, 0)
	assert.ErrorIs(t, err, ucs.ErrClosed)
}

func TestRawCallsDoNotAllocate(t *testing.T) {
	ep, err := NewEpoll()
	require.NoError(t, err)
	defer func() { require.NoError(t, ep.Close()) }()
	e := newEvent(t)
	require.NoError(t, ep.Add(e.FD(), 1, EventIn))
	p, w := newWakePipe(t)
	buf := make([]Event, 8)
	src, dst := make([]byte, 64), make([]byte, 64)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		_ = e.Signal()
		_ = ep.Rearm(e.FD(), 1, EventIn)
		_, _ = ep.Wait(buf, 0)
		e.Drain()
		_ = p.Signal()
		_ = w.Signal()
		p.Drain()
	}))
	if _, err := ProcessRead(os.Getpid(), dst, address(src)); err == nil {
		assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = ProcessRead(os.Getpid(), dst, address(src)) }))
	}
}

// TestBarrierHoldsStoreBeforeLoad is the wake-up pattern: each side stores its
// word and then looks at the other's. Both may not miss; the light side has no
// fence of its own, the heavy side pays for both. (Without the barrier some 5 of
// 20,000 rounds fail on two cores.)
func TestBarrierHoldsStoreBeforeLoad(t *testing.T) {
	for name, barrier := range map[string]func() error{"global": GlobalBarrier, "private": PrivateBarrier} {
		t.Run(name, func(t *testing.T) {
			if err := barrier(); errors.Is(err, ucs.ErrUnsupported) {
				t.Skip(err)
			} else {
				require.NoError(t, err)
			}
			missed := storeLoad(20_000, barrier)
			assert.Zero(t, missed)
		})
	}
	assert.NoError(t, RegisterGlobal())
	assert.NoError(t, RegisterPrivate())
}

func storeLoad(rounds int, barrier func() error) (missed int) {
	var words struct { // lines of their own: a shared one would keep the order by itself
		light     atomic.Uint32
		_         ucs.Pad
		heavy     atomic.Uint32
		_         ucs.Pad
		turn      atomic.Int64
		_         ucs.Pad
		lightDone atomic.Int64
		lightSaw  atomic.Bool
	}
	light, heavy, turn := &words.light, &words.heavy, &words.turn
	lightDone, lightSaw := &words.lightDone, &words.lightSaw
	go func() {
		for r := int64(1); r <= int64(rounds); r++ {
			for turn.Load() < r {
				runtime.Gosched()
			}
			storePlain(light, 1)
			lightSaw.Store(heavy.Load() == 1)
			lightDone.Store(r)
		}
	}()
	for r := int64(1); r <= int64(rounds); r++ {
		light.Store(0)
		heavy.Store(0)
		turn.Store(r)
		for range r % 512 { // meet the light side at every point of its two steps
			lightDone.Load()
		}
		heavy.Store(1)
		if barrier() != nil {
			return rounds
		}
		saw := light.Load() == 1
		for lightDone.Load() < r {
			runtime.Gosched()
		}
		if !saw && !lightSaw.Load() {
			missed++
		}
	}
	return missed
}
