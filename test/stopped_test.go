//go:build linux

package test

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

const (
	// closeTimeout is short, since closing towards a stopped peer takes as long.
	closeTimeout = time.Second
	// closeSlack is what a loaded machine may add to a bound.
	closeSlack = 10 * time.Second
)

// TestStoppedPeer: a process that is stopped, and goes on later, holds up only
// those who wait for it, and only as long as they like. Nothing is lost.
func TestStoppedPeer(t *testing.T) {
	ctx := bounded(t)
	s := openBounded(t, ucp.ThreadSingle, closeTimeout)
	// This process and two talkers send to a collector; the talkers talk.
	v, key := startCollector(t, s)
	talkers := startTalkers(t, v.address)
	e := s.dial(t, v.address)
	push := pusher(e, 9)
	sent := push(pushes)
	require.NoError(t, ucp.WaitAll(ctx, sent, nil))
	for _, p := range talkers {
		p.say("push")
		p.hear()
		p.say("pushed")
		p.expect("all")
	}
	v.p.say(3 * pushes)
	v.p.expect("collected 900")
	before := pace(talkers[0], 3, 0)

	v.p.signal(syscall.SIGSTOP)
	waitStopped(t, v.p)
	sent = push(pushes)
	flush := e.Flush()
	require.False(t, flush.Done())
	require.NotEmpty(t, unended(sent))
	for _, p := range talkers {
		p.say("push")
		require.NotEqual(t, "0", p.hear(), "sends that wait for the stopped process")
	}
	during := pace(talkers[0], 40, before/4)
	t.Logf("round trips per second of the others: %.0f before, %.0f while it was stopped", before, during)
	require.Greater(t, during, before/4)
	echo := newBystander(t)
	other := s.dial(t, echo.address)
	echo.p.say(s.address())
	echo.p.expect("answering")
	require.NoError(t, pingPong(ctx, s.w, other, 100), "this process with another")

	t.Run("wait gives up", func(t *testing.T) { giveUp(t, flush, sent[len(sent)-1]) })
	t.Run("abort", func(t *testing.T) { abortStopped(t, s, v.address) })
	t.Run("close", func(t *testing.T) { closeStopped(t, s, v.address) })
	t.Run("key", func(t *testing.T) { unpackStopped(t, s, e, key) })
	t.Run("close context", func(t *testing.T) { closeContextStopped(t, v.address) })

	v.p.signal(syscall.SIGCONT)
	require.NoError(t, ucp.WaitAll(ctx, sent, nil))
	require.NoError(t, flush.Wait(ctx))
	for _, p := range talkers {
		p.say("pushed")
		p.expect("all")
	}
	v.p.say(6 * pushes)
	v.p.expect("collected 1800")
	k, err := s.unpack(e, key)
	require.NoError(t, err)
	require.NoError(t, k.PutUint64(1, 0).Wait(ctx))
	require.NoError(t, ucp.WaitAll(ctx, []ucp.Request{e.Flush(), other.Flush()}, nil))
	require.NoError(t, s.x.Close())
}

// meeting is a peer with its worker's address.
type meeting struct {
	p       *process
	address string
}

func startCollector(t testing.TB, s *node) (m meeting, key string) {
	m.p = start(t, "peer")
	m.p.say("collect")
	m.address = m.p.hear()
	m.p.say(s.address())
	m.p.say("go")
	return m, m.p.hear()
}

func startTalkers(t testing.TB, collector string) (ps []*process) {
	var addresses []string
	for _, what := range []string{"begin", "follow"} {
		p := start(t, "peer")
		p.say(what)
		addresses = append(addresses, p.hear())
		ps = append(ps, p)
	}
	for i, p := range ps {
		p.say(addresses[1-i])
		p.say("go")
		p.say(collector)
		p.say(i + 1)
	}
	return ps
}

// pusher gives a function that sends the next n numbered messages.
func pusher(e ucp.Endpoint, id uint32) func(n int) []ucp.Request {
	next := uint64(0)
	return func(n int) (rs []ucp.Request) {
		for range n {
			p := make([]byte, sizeOf(id, next))
			fill(p, id, next)
			rs = append(rs, e.TagSend(p, tagStream))
			next++
		}
		return rs
	}
}

// pace is the best rate of a talker in some windows of time; it stops at one
// that is enough.
func pace(p *process, windows int, enough float64) (best float64) {
	count := func() (n float64) {
		p.say("count")
		p.scan(&n)
		return n
	}
	for range windows {
		from, began := count(), time.Now()
		time.Sleep(100 * time.Millisecond) // the window
		best = max(best, (count()-from)/time.Since(began).Seconds())
		if enough > 0 && best > enough {
			break
		}
	}
	return best
}

func waitStopped(t testing.TB, p *process) {
	t.Helper()
	require.Eventually(t, func() bool {
		b, err := os.ReadFile("/proc/" + pidOf(p) + "/stat")
		return err == nil && strings.Contains(string(b), ") T ")
	}, patience, time.Millisecond)
}

// giveUp: the end of ctx ends the waiting, in time, and not the operation.
func giveUp(t *testing.T, rs ...ucp.Request) {
	cause := errors.New("enough")
	for _, r := range rs {
		ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Millisecond, cause)
		began := time.Now()
		require.ErrorIs(t, r.Wait(ctx), cause)
		require.Less(t, time.Since(began), closeSlack)
		cancel()
		require.False(t, r.Done())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, rs[0].Wait(ctx), context.DeadlineExceeded)
}

// abortStopped: the endpoint's requests end at once, those of the other endpoint
// to the same worker, which share its lane, do not.
func abortStopped(t *testing.T, s *node, address string) {
	e := s.dial(t, address)
	rs := unended([]ucp.Request{
		e.TagSend(make([]byte, 1000), tagNever), e.TagSend(make([]byte, big), tagNever), e.Flush(),
		s.w.TagRecv(make([]byte, 8), tagNever, allBits).Tie(e).Request,
	})
	require.Len(t, rs, 4)
	cause := errors.New("the cause")
	began := time.Now()
	e.Abort(cause)
	require.Less(t, time.Since(began), closeTimeout)
	for _, r := range rs {
		require.True(t, r.Done())
		require.ErrorIs(t, r.Err(), ucp.ErrCanceled)
		require.ErrorIs(t, r.Err(), cause)
	}
	require.ErrorIs(t, e.TagSendUint64(1, 1).Err(), ucp.ErrClosed)
}

func closeStopped(t *testing.T, s *node, address string) {
	e := s.dial(t, address)
	r := e.TagSend(make([]byte, 1000), tagNever)
	began := time.Now()
	err := e.Close()
	took := time.Since(began)
	require.ErrorIs(t, err, ucp.ErrTimeout)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.GreaterOrEqual(t, took, closeTimeout)
	require.Less(t, took, closeTimeout+closeSlack)
	require.True(t, r.Done())
	require.Error(t, r.Err())
}

// unpackStopped: the owner would have to answer.
func unpackStopped(t *testing.T, s *node, e ucp.Endpoint, key string) {
	began := time.Now()
	_, err := s.unpack(e, key)
	require.ErrorIs(t, err, ucp.ErrTimeout)
	require.ErrorContains(t, err, "stopped")
	require.Less(t, time.Since(began), 2*time.Second+closeSlack)
}

// closeContextStopped: a context is closed while it has waiting sends.
func closeContextStopped(t *testing.T, address string) {
	for name, mode := range map[string]ucp.ThreadMode{"single": ucp.ThreadSingle, "multi": ucp.ThreadMulti} {
		t.Run(name, func(t *testing.T) {
			before := takeCensus(t)
			s := openBounded(t, mode, closeTimeout)
			e := s.dial(t, address)
			for range 100 {
				e.TagSend(make([]byte, 1000), tagNever)
			}
			began := time.Now()
			err := s.x.Close()
			require.ErrorIs(t, err, ucp.ErrTimeout)
			require.Less(t, time.Since(began), closeTimeout+closeSlack)
			requireBack(t, before)
		})
	}
}
