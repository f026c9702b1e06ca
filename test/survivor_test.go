//go:build linux

package test

import (
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// survivor is this process beside a peer that is going to die.
type survivor struct {
	*node
	t        testing.TB
	mode     ucp.ThreadMode
	ctx      context.Context
	peer     *process
	e, twin  ucp.Endpoint // both to the peer
	alone    bool         // twin was not used
	unused   ucp.Endpoint // to the peer, and never used before its death
	failed   [2]atomic.Int32
	reason   atomic.Value
	key      *ucp.RemoteKey // of the peer's memory, where it lends some
	streamed int            // messages of its stream that came
	bystands ucp.Endpoint
	exposed  bool // memory stays pinned
	died     time.Time
	noticed  time.Duration // after died
}

// newSurvivor starts a peer and meets it; the peer behaves as told.
func newSurvivor(t testing.TB, mode ucp.ThreadMode, behaviour string) *survivor {
	s := &survivor{node: open(t, mode), t: t, mode: mode, ctx: bounded(t), peer: start(t, "peer")}
	s.peer.say(behaviour)
	a, err := hex.DecodeString(s.peer.hear())
	require.NoError(t, err)
	for i, e := range []*ucp.Endpoint{&s.e, &s.twin} {
		*e, err = s.w.NewEndpoint(a, ucp.EndpointConfig{OnFailure: func(_ ucp.Endpoint, err error) {
			s.failed[i].Add(1)
			s.reason.Store(err)
		}})
		require.NoError(t, err)
	}
	s.unused, err = s.w.NewEndpoint(a, ucp.EndpointConfig{})
	require.NoError(t, err)
	s.peer.say(s.address())
	return s
}

// connectBoth opens the way to the peer for both endpoints.
func (s *survivor) connectBoth() {
	require.NotZero(s.t, s.e.MaxInline())
	require.NotZero(s.t, s.twin.MaxInline())
}

// pingPong exchanges n numbered messages over an endpoint to an echo.
func (s *survivor) pingPong(e ucp.Endpoint, n int) error {
	return pingPong(s.ctx, s.w, e, n)
}

func pingPong(ctx context.Context, w *ucp.Worker, e ucp.Endpoint, n int) error {
	out, in := make([]byte, 64<<10), make([]byte, 64<<10)
	for i := range uint64(n) {
		p := out[:sizeOf(7, i)%(32<<10)+messageHead]
		fill(p, 7, i)
		sent := e.TagSend(p, tagPing)
		m, err := w.TagRecv(in, tagPong, allBits).Tie(e).Wait(ctx)
		if err != nil {
			return err
		}
		if err := sent.Wait(ctx); err != nil {
			return err
		}
		switch _, k, err := read(in[:m.Len]); {
		case err != nil:
			return err
		case k != i:
			return &orderError{k, i}
		}
	}
	return nil
}

// meetBystander connects to a third process, whose traffic has to go on.
func (s *survivor) meetBystander(b *bystander) {
	s.bystands = s.dial(s.t, b.address)
	b.p.say(s.address())
	b.p.expect("answering")
	require.NoError(s.t, s.pingPong(s.bystands, 20))
}

// bystander is an echo that lives through all cases.
type bystander struct {
	p       *process
	address string
}

func newBystander(t testing.TB) *bystander {
	n := open(t, ucp.ThreadSingle)
	b := &bystander{p: start(t, "peer")}
	b.p.say("echo")
	b.address = b.p.hear()
	b.p.say(n.address())
	b.p.say("go")
	b.p.expect("echoing")
	require.NoError(t, n.x.Close())
	return b
}

// calls is how often OnFailure was called for each endpoint, and how often it
// had to be.
func (s *survivor) calls() (are, must []int32) {
	must = []int32{1, 1}
	if s.alone {
		must[1] = 0
	}
	return []int32{s.failed[0].Load(), s.failed[1].Load()}, must
}

// notice waits for OnFailure, which is due within mostLate after the death. The
// requests have ended.
func (s *survivor) notice() {
	if s.noticed > 0 {
		return
	}
	until(s.t, func() bool { are, must := s.calls(); return slices.Equal(are, must) }, s.w.Progress)
	s.noticed = time.Since(s.died)
	s.t.Logf("all requests ended and OnFailure was called within %.1f ms", float64(s.noticed.Microseconds())/1000)
	require.Less(s.t, s.noticed, mostLate)
}

// requireDead: both endpoints say that the peer failed, and only they.
func (s *survivor) requireDead() {
	t := s.t
	s.notice()
	require.ErrorIs(t, s.reason.Load().(error), ucp.ErrPeerFailed)
	s.refuses(s.e)
	if !s.alone {
		s.refuses(s.twin)
	}
	require.NoError(t, s.pingPong(s.bystands, 50), "another endpoint")
	for range 5000 {
		s.w.Progress()
	}
	are, must := s.calls()
	require.Equal(t, must, are, "calls of OnFailure")
	// A dying process can still be connected to for a moment.
	until(t, func() bool { return s.unused.TagSendUint64(1, 1).Err() != nil }, s.w.Progress)
}

// refuses: every later operation of the endpoint answers the same.
func (s *survivor) refuses(e ucp.Endpoint) {
	t := s.t
	p := make([]byte, 100)
	ended := map[string]error{
		"send":        e.TagSend(p, 1).Wait(s.ctx),
		"long send":   e.TagSend(make([]byte, big), 1).Wait(s.ctx),
		"inline send": e.TagSendInline(p, 1).Wait(s.ctx),
		"scalar send": e.TagSendUint64(1, 1).Wait(s.ctx),
		"vector send": e.TagSendV([][]byte{p, p}, 1).Wait(s.ctx),
		"flush":       e.Flush().Wait(s.ctx),
	}
	_, ended["tied receive"] = s.w.TagRecv(p, tagNever, allBits).Tie(e).Wait(s.ctx)
	if s.key != nil && e == s.e {
		ended["put"] = s.key.Put(p, 0).Wait(s.ctx)
		ended["scalar put"] = s.key.PutUint64(1, 0).Wait(s.ctx)
		ended["get"] = s.key.Get(p, 0).Wait(s.ctx)
		_, ended["scalar get"] = s.key.GetUint64(0).Wait(s.ctx)
		if add, err := ucp.AtomicAt[uint64](s.key, 8); err == nil {
			ended["add"] = add.Add(1).Wait(s.ctx)
			_, ended["fetch"] = add.FetchAdd(1).Wait(s.ctx)
		}
	}
	for op, err := range ended {
		assert.ErrorIs(t, err, ucp.ErrPeerFailed, op)
	}
	require.ErrorIs(t, e.Info().Err, ucp.ErrPeerFailed)
}

// part closes what there is to the dead peer, and then all.
func (s *survivor) part() {
	t := s.t
	require.NoError(t, s.e.Close())
	s.twin.Abort(nil)
	require.NoError(t, s.unused.Close())
	require.NoError(t, s.pingPong(s.bystands, 20))
	require.NoError(t, s.bystands.Close())
	require.NoError(t, s.x.Close())
}

func pidOf(p *process) string { return strconv.Itoa(p.cmd.Process.Pid) }
