package ucp

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/self"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// waiting is an iface with operations that wait.
type waiting struct {
	uct.Iface
	moves, turns int           // operations that each turn resumes, and turns
	left         bool          // others still wait afterwards
	longest      time.Duration // that a turn was given
}

func (f *waiting) PendingLeft() bool { return f.left }

func (f *waiting) ResumePending(until ucs.Time) (moved int, left bool) {
	f.turns++
	f.longest = max(f.longest, until.Sub(ucs.Now()))
	return f.moves, f.left
}

func openWaiting(t *testing.T) (*Worker, *workerIface, *waiting) {
	t.Helper()
	ps := []uct.Component{self.Component()}
	set, _, err := config.Load(config.Options{Env: []string{}, Dirs: []string{}}, Tables(ps)...)
	require.NoError(t, err)
	x, err := Open(Config{Providers: ps, Settings: set})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	w, err := x.NewWorker(WorkerConfig{})
	require.NoError(t, err)
	f := &waiting{left: true}
	return w, &workerIface{t: &w.t, iface: f}, f
}

// The async goroutine waits neither for the lock nor for the progress ownership: it
// tries again within 1 ms while operations wait, and a turn is at most 50 us.
func TestUnattendedTries(t *testing.T) {
	w, wi, f := openWaiting(t)
	soon := func(d time.Duration, when string) {
		t.Helper()
		assert.Positive(t, d, when)
		assert.LessOrEqual(t, d, time.Millisecond, when)
	}
	w.t.owner.mu.Lock()
	soon(wi.resumeUnattended(), "while another goroutine has the lock")
	w.t.owner.mu.Unlock()
	w.t.owner.state = ownerRuns
	soon(wi.resumeUnattended(), "while another goroutine progresses")
	w.t.owner.state = ownerSleeps
	assert.Negative(t, wi.resumeUnattended(), "the transport has woken the sleeper")
	w.t.owner.state, f.left = ownerRuns, false
	assert.Negative(t, wi.resumeUnattended(), "the other goroutine has resumed them")
	w.t.owner.state, f.left = ownerNone, true
	assert.Zero(t, f.turns, "without lock and ownership")

	f.moves = 3
	soon(wi.resumeUnattended(), "when there is more")
	assert.LessOrEqual(t, f.longest, 50*time.Microsecond)
	f.moves = 0
	first := wi.resumeUnattended()
	soon(first, "when there was no room")
	for range 20 {
		d := wi.resumeUnattended()
		assert.GreaterOrEqual(t, d, first)
		first = d
	}
	assert.LessOrEqual(t, first, 20*time.Millisecond)
	f.moves = 1
	soon(wi.resumeUnattended(), "when there is room again")
	f.left = false
	assert.Negative(t, wi.resumeUnattended(), "when nothing waits")
	assert.Equal(t, ownerNone, w.t.owner.state)
	require.True(t, w.t.owner.mu.TryLock(), "the lock is free")
	w.t.owner.mu.Unlock()
}

// A callback that became due in a turn runs in the program's next pass, and a
// goroutine that waits for the progress ownership gets it.
func TestUnattendedRunsNoCallback(t *testing.T) {
	w, wi, f := openWaiting(t)
	e, err := w.NewEndpoint(w.Address(), EndpointConfig{})
	require.NoError(t, err)
	r := w.TagRecv(make([]byte, 8), 1, ^Tag(0))
	var ran atomic.Bool
	require.True(t, r.Notify(func(Completion) { ran.Store(true) }, 0))
	f.left = false
	r.Cancel()
	wi.resumeUnattended()
	require.Equal(t, 1, f.turns)
	require.False(t, ran.Load(), "in the async goroutine")
	w.Progress()
	require.True(t, ran.Load())

	got := w.TagRecv(make([]byte, 8), 2, ^Tag(0))
	ended := make(chan error)
	go func() {
		_, err := got.Wait(context.Background())
		ended <- err
	}()
	for range 1000 {
		wi.resumeUnattended()
	}
	e.TagSendUint64(3, 2)
	require.NoError(t, <-ended)
}
