package async

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// patience bounds every wait for the goroutine.
const patience = 60 * time.Second

func start(t *testing.T, c Config) *Async {
	t.Helper()
	a, err := New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

func newOwner(t *testing.T, a *Async) *Owner {
	t.Helper()
	o, err := a.NewOwner()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, o.Close()) })
	return o
}

// fired waits for a function to have signalled.
func fired(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		require.Fail(t, "did not run")
	}
}

// signal is a function to register, and the channel that its calls fill.
func signal() (fn func(ucs.Time), c chan struct{}) {
	c = make(chan struct{}, 1000)
	return func(ucs.Time) { c <- struct{}{} }, c
}

func inside(o *Owner, fn func()) {
	o.EnterWait()
	defer o.Leave()
	fn()
}

// inGoroutine runs fn in the async goroutine after d, by a timer of an owner that does nothing else.
func inGoroutine(t *testing.T, a *Async, d time.Duration, fn func(now ucs.Time)) {
	t.Helper()
	o := newOwner(t, a)
	inside(o, func() { o.After(d, fn) })
}

func TestOwnerTimerRunsWhileTheWorkerDoesNotPoll(t *testing.T) {
	a := start(t, Config{})
	o := newOwner(t, a)
	fn, c := signal()
	inside(o, func() { o.After(time.Millisecond, fn) })
	fired(t, c)
	assert.NotZero(t, a.Stats().Sections)
	inside(o, func() { assert.Equal(t, never, o.Next()) })
}

func TestOwnerTimerRunsInPollOfAPollingWorker(t *testing.T) {
	a := start(t, Config{Period: 10 * time.Second})
	o := newOwner(t, a)
	fn, c := signal()
	inside(o, func() { o.After(time.Millisecond, fn) })
	for deadline := time.Now().Add(patience); len(c) == 0 && time.Now().Before(deadline); {
		inside(o, func() { o.Poll(ucs.Now()) })
	}
	assert.Len(t, c, 1)
	assert.Zero(t, a.Stats().Sections)
}

func TestOwnerCancel(t *testing.T) {
	a := start(t, Config{})
	o := newOwner(t, a)
	fn, c := signal()
	inside(o, func() {
		timer := o.After(time.Microsecond, fn)
		assert.NotEqual(t, never, o.Next())
		assert.True(t, o.Cancel(timer))
		assert.False(t, o.Cancel(timer))
		assert.Equal(t, never, o.Next())
		o.After(3*time.Millisecond, fn)
	})
	fired(t, c)
	assert.Empty(t, c)
}

func TestOwnerMadeWhileTheGoroutineIsAtWork(t *testing.T) {
	a := start(t, Config{})
	atWork, goOn := make(chan bool), make(chan bool)
	inGoroutine(t, a, 0, func(ucs.Time) { close(atWork); <-goOn })
	<-atWork
	o := newOwner(t, a)
	fn, c := signal()
	inside(o, func() { o.After(0, fn) })
	close(goOn)
	fired(t, c)
}

func TestWorkerThatStandsInsideIsLeftAlone(t *testing.T) {
	a := start(t, Config{Period: maxSection})
	o := newOwner(t, a)
	other := newOwner(t, a)
	fn, c := signal()
	otherFn, otherC := signal()
	require.True(t, o.Enter())
	o.After(0, fn)
	inside(other, func() {
		var again func(now ucs.Time)
		again = func(now ucs.Time) { otherFn(now); other.At(now, again) }
		other.After(0, again)
	})
	for range 20 { // the goroutine had many chances
		fired(t, otherC)
	}
	assert.Empty(t, c)
	o.Leave()
	fired(t, c)
}

// TestWorkerThatStaysInsideCostsLittle: a timer that is due and a descriptor that is
// ready, of a worker that stays inside, do not keep the goroutine busy.
func TestWorkerThatStaysInsideCostsLittle(t *testing.T) {
	a := start(t, Config{Period: maxSection})
	o := newOwner(t, a)
	e, err := shmem.NewEventFD()
	if errors.Is(err, ucs.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	fn, c := signal()
	inside(o, func() { require.NoError(t, o.Watch(e.FD(), func() { e.Drain() })) })
	require.True(t, o.Enter())
	o.After(0, fn)
	require.NoError(t, e.Signal())
	clock, ticked := signal()
	inGoroutine(t, a, 200*time.Millisecond, clock)
	fired(t, ticked)
	assert.LessOrEqual(t, a.Stats().Wakeups, uint64(200), "four thousand periods have passed")
	o.Leave()
	fired(t, c)
	inside(o, func() { require.NoError(t, o.Unwatch(e.FD())) })
}

func TestMoreTimersThanASectionTakes(t *testing.T) {
	a := start(t, Config{})
	o := newOwner(t, a)
	fn, c := signal()
	inside(o, func() {
		for range 5 * sectionTimers {
			o.After(0, fn)
		}
	})
	for range 5 * sectionTimers {
		fired(t, c)
	}
}

func TestIdleGoroutineSleeps(t *testing.T) {
	a := start(t, Config{Period: maxSection})
	o := newOwner(t, a)
	e, err := shmem.NewEventFD()
	if err == nil {
		other, err := shmem.NewEventFD()
		require.NoError(t, err)
		defer func() { require.NoError(t, errors.Join(a.Close(), o.Close(), e.Close(), other.Close())) }()
		require.NoError(t, a.Watch(e.FD(), func() {}))
		inside(o, func() { require.NoError(t, o.Watch(other.FD(), func() {})) })
	}
	fn, c := signal()
	inside(o, func() {
		timer := o.After(time.Hour, fn)
		o.Cancel(timer)
		o.After(time.Hour, fn)
	})
	inGoroutine(t, a, 20*time.Millisecond, fn) // the clock of this test
	fired(t, c)
	assert.LessOrEqual(t, a.Stats().Wakeups, uint64(6), "four hundred periods have passed")
}

func TestFrequentTimersOfAPollingWorkerWakeRarely(t *testing.T) {
	a := start(t, Config{Period: 5 * time.Millisecond})
	o := newOwner(t, a)
	ran := 0
	var again func(now ucs.Time)
	again = func(now ucs.Time) { ran++; o.At(now.Add(100*time.Microsecond), again) }
	inside(o, func() { o.After(0, again) })
	began := time.Now()
	for time.Since(began) < 50*time.Millisecond {
		inside(o, func() { o.Poll(ucs.Now()) })
		runtime.Gosched()
	}
	if elapsed := time.Since(began); a.Stats().Sections == 0 { // else the machine stopped the worker
		assert.LessOrEqual(t, a.Stats().Wakeups, uint64(elapsed/(5*time.Millisecond))+3)
	}
	inside(o, func() { assert.NotZero(t, ran) })
}

func TestClose(t *testing.T) {
	a, err := New(Config{})
	require.NoError(t, err)
	o, err := a.NewOwner()
	require.NoError(t, err)
	fn, c := signal()
	inside(o, func() { o.After(time.Hour, fn) })
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { assert.NoError(t, a.Close()) })
	}
	all.Wait()
	require.NoError(t, a.Close())
	_, err = a.NewOwner()
	assert.ErrorIs(t, err, ucs.ErrClosed)
	inside(o, func() { assert.Equal(t, 1, o.Poll(ucs.Now().Add(2*time.Hour))) })
	assert.Len(t, c, 1)
	require.NoError(t, o.Close())
	require.NoError(t, o.Close())
}

func TestOwnerOutlivesAsync(t *testing.T) {
	a, err := New(Config{})
	require.NoError(t, err)
	o, err := a.NewOwner()
	require.NoError(t, err)
	e, err := shmem.NewEventFD()
	if errors.Is(err, ucs.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	inside(o, func() { require.NoError(t, o.Watch(e.FD(), func() { t.Error("nobody looks") })) })
	require.NoError(t, a.Close())
	require.NoError(t, e.Signal())
	inside(o, func() {
		o.After(0, func(ucs.Time) {})
	})
	assert.ErrorIs(t, a.Watch(e.FD(), func() {}), ucs.ErrClosed)
	require.NoError(t, o.Close())
}

func TestClosedOwnerIsNotServed(t *testing.T) {
	a := start(t, Config{Period: maxSection})
	fn, c := signal()
	for range 50 {
		o, err := a.NewOwner()
		require.NoError(t, err)
		inside(o, func() { o.After(100*time.Microsecond, fn) })
		require.NoError(t, o.Close())
		n := len(c)
		done, doneC := signal()
		inGoroutine(t, a, 300*time.Microsecond, done)
		fired(t, doneC)
		assert.Len(t, c, n)
	}
}

func TestWatch(t *testing.T) {
	a := start(t, Config{})
	o := newOwner(t, a)
	e, err := shmem.NewEventFD()
	if errors.Is(err, ucs.ErrUnsupported) {
		assert.ErrorIs(t, a.Watch(0, nil), ucs.ErrUnsupported)
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	fn, c := signal()
	react := func() {
		if e.Drain() {
			fn(0)
		}
	}
	t.Run("of nobody", func(t *testing.T) {
		require.NoError(t, a.Watch(e.FD(), react))
		assert.Error(t, a.Watch(e.FD(), react), "twice")
		for range 100 {
			require.NoError(t, e.Signal())
			fired(t, c)
		}
		require.NoError(t, a.Unwatch(e.FD()))
		assert.ErrorIs(t, a.Unwatch(e.FD()), ucs.ErrInvalid)
	})
	t.Run("of a worker that does not poll", func(t *testing.T) {
		inside(o, func() {
			assert.ErrorIs(t, o.Unwatch(e.FD()), ucs.ErrInvalid)
			require.NoError(t, o.Watch(e.FD(), react))
		})
		before := a.Stats().Sections
		for range 100 {
			require.NoError(t, e.Signal())
			fired(t, c)
		}
		assert.GreaterOrEqual(t, a.Stats().Sections-before, uint64(100))
		inside(o, func() { require.NoError(t, o.Unwatch(e.FD())) })
		require.NoError(t, e.Signal())
		done, doneC := signal()
		inGoroutine(t, a, 3*DefaultPeriod, done)
		fired(t, doneC)
		assert.Empty(t, c)
		e.Drain()
	})
	t.Run("of a worker that looks itself", func(t *testing.T) {
		inside(o, func() { require.NoError(t, o.Watch(e.FD(), react)) })
		for range 100 {
			require.NoError(t, e.Signal())
			inside(o, react)
			fired(t, c)
		}
		assert.Empty(t, c)
	})
	t.Run("several of a worker", func(t *testing.T) {
		other, err := shmem.NewEventFD()
		require.NoError(t, err)
		defer func() { require.NoError(t, other.Close()) }()
		fn, d := signal()
		inside(o, func() {
			require.NoError(t, o.Watch(other.FD(), func() {
				if other.Drain() {
					fn(0)
				}
			}))
		})
		for range 100 {
			require.NoError(t, e.Signal())
			require.NoError(t, other.Signal())
			fired(t, c)
			fired(t, d)
		}
		inside(o, func() { require.NoError(t, o.Unwatch(other.FD())) })
	})
	t.Run("of a worker that stops after the event", func(t *testing.T) {
		for range 20 {
			require.NoError(t, e.Signal())
			for range 100 { // polls, but does not look at descriptors
				inside(o, func() {})
			}
			fired(t, c)
		}
		inside(o, func() { require.NoError(t, o.Unwatch(e.FD())) })
	})
}

// TestOneProcessor: a worker that computes without polling on the only
// processor is served nevertheless.
func TestOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	a := start(t, Config{})
	o := newOwner(t, a)
	var ran atomic.Bool
	inside(o, func() { o.After(time.Millisecond, func(ucs.Time) { ran.Store(true) }) })
	for began := time.Now(); !ran.Load() && time.Since(began) < patience; {
	}
	assert.True(t, ran.Load())
}

// The function that a section requests runs after it, outside, and repeats as it asks.
func TestOutside(t *testing.T) {
	a := start(t, Config{})
	o := newOwner(t, a)
	type call struct {
		entered bool
		at      ucs.Time
	}
	calls := make(chan call, 10)
	left := 3
	inside(o, func() {
		o.SetOutside(func() time.Duration {
			entered := o.Enter() // the gate is open: it is this goroutine's
			if entered {
				o.Leave()
			}
			calls <- call{entered, ucs.Now()}
			if left--; left == 0 {
				return -1
			}
			return time.Millisecond
		})
		o.After(0, func(ucs.Time) { o.CallOutside() })
	})
	var last ucs.Time
	for n := range 3 {
		select {
		case c := <-calls:
			assert.True(t, c.entered)
			if n > 0 {
				assert.GreaterOrEqual(t, c.at.Sub(last), time.Millisecond)
			}
			last = c.at
		case <-time.After(patience):
			require.Fail(t, "it was not called")
		}
	}
	fn, c := signal()
	inside(o, func() { o.After(0, fn) }) // a section that asks for nothing
	fired(t, c)
	inGoroutine(t, a, 3*time.Millisecond, fn)
	fired(t, c)
	assert.Empty(t, calls, "it wanted no more")
}

// A worker that polls does not delay the function, which provides the exclusion itself.
func TestOutsideBesideAPollingWorker(t *testing.T) {
	a := start(t, Config{Period: maxSection})
	o := newOwner(t, a)
	var worker sync.Mutex // who acts as the worker
	var times atomic.Int32
	inside(o, func() {
		o.SetOutside(func() time.Duration {
			if !worker.TryLock() {
				return 0
			}
			defer worker.Unlock()
			o.EnterWait()
			o.Leave()
			if times.Add(1) == 100 {
				return -1
			}
			return 0
		})
		o.After(0, func(ucs.Time) { o.CallOutside() })
	})
	for deadline := time.Now().Add(patience); times.Load() < 100 && time.Now().Before(deadline); runtime.Gosched() {
		worker.Lock()
		if times.Load() > 0 && o.Enter() { // from the first call on
			o.Leave()
		}
		worker.Unlock()
	}
	assert.EqualValues(t, 100, times.Load())
}
