package ucp

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// Within a host a peer that is gone is refused at once: no other transport waits
// for its answer.
func TestGoneAtFirstUse(t *testing.T) {
	p := newSWPair(t, "shm,rc,ud", 64)
	gone, err := p.x.NewWorker(WorkerConfig{Mode: ThreadSingle})
	require.NoError(t, err)
	failed := 0
	e, err := p.a.NewEndpoint(gone.Address(), EndpointConfig{OnFailure: func(Endpoint, error) { failed++ }})
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	r := e.TagSend([]byte("hello"), 1)
	require.True(t, r.Done())
	require.ErrorIs(t, r.Err(), ErrUnreachable)
	require.ErrorContains(t, r.Err(), "its process is dead or its worker closed")
	_, err = e.UnpackKey(p.m.Key())
	require.ErrorIs(t, err, ErrUnreachable)
	for range 10 {
		p.a.Progress()
	}
	require.Equal(t, 1, failed)
}

// A transport that learns of a peer's death speaks for the others, which would
// wait for an answer.
func TestDeathEndsAllLanes(t *testing.T) {
	p := newSWPair(t, "shm,rc", 64)
	messages := p.a.t.eps[p.a.t.endpoint(p.e)].lane
	l := &p.a.t.lanes[messages]
	peer, shm := l.peer, p.a.t.ifaces[l.iface]
	require.Equal(t, "shm", shm.info.Transport)
	view := p.a.t.peers.View(peer)
	plan, _ := wireup.Choose(p.a.t.locals, view, wireup.ForAM)
	n := slices.IndexFunc(plan[wireup.ForAM], func(c wireup.Candidate) bool { return p.a.t.ifaces[c.Local].info.Transport == "rc" })
	other, err := p.a.t.openLane(peer, &view, plan[wireup.ForAM][n])
	require.NoError(t, err)
	p.a.t.sendAddress(other) // it waits: the peer does nothing
	require.Equal(t, 1, p.a.t.lanes[other].pending)

	shm.HandleFailure(uct.Failure{Endpoint: l.transport(), Err: ErrPeerFailed})
	require.Equal(t, ucs.PeerFailed, p.a.t.lanes[other].status())
	require.Zero(t, p.a.t.lanes[other].pending)
	for p.a.t.lanes[other].ep.AMShort(wire.Eager, 0, nil) == ucs.NoResource {
		require.NoError(t, p.ctx.Err())
		p.a.Progress()
	}
	require.Equal(t, ucs.Canceled, p.a.t.lanes[other].ep.AMShort(wire.Eager, 0, nil))

	later, err := p.a.t.openLane(peer, &view, plan[wireup.ForAM][n])
	require.NoError(t, err)
	shm.HandleFailure(uct.Failure{Endpoint: p.a.t.lanes[messages].transport(), Err: ErrPeerFailed})
	require.Equal(t, ucs.OK, p.a.t.lanes[later].status(), "of another connection")
	p.a.t.releaseLane(other)
	p.a.t.releaseLane(later)
}
