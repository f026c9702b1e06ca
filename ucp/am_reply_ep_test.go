package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/uct"
)

// The endpoint to answer by is one per peer and ends with it.
func TestAMFrom(t *testing.T) {
	wi := newPort(t)
	w := wi.worker()
	var from []Endpoint
	require.NoError(t, w.HandleAM(0, func(m *AM) { from = append(from, m.From) }))
	ask := func(sources ...uint32) []Endpoint {
		from = nil
		for _, s := range sources {
			deliver(wi, packet{wire.Peer, s, 0, w.t.address}, packet{wire.User, s, wire.WordReply, nil})
		}
		return from
	}
	es := ask(1, 2, 1)
	require.Len(t, es, 3)
	assert.Equal(t, es[0], es[1], "two connections of one peer")
	assert.Equal(t, es[0], es[2])
	eps := len(w.t.eps)

	// The peer fails: its endpoint does, and is forgotten.
	r := es[0].AMSendWith(9, nil, nil, Opts{Flags: ForceRendezvous})
	lane := w.t.eps[uint32(es[0].id)].lane
	require.NotZero(t, lane)
	wi.HandleFailure(uct.Failure{Endpoint: w.t.lanes[lane].ep, RxConn: 1, Err: ErrPeerFailed})
	require.ErrorIs(t, r.Err(), ErrPeerFailed)
	require.Error(t, es[0].AMSend(9, nil, nil).Err())
	assert.Empty(t, w.t.am.fromEps)

	// It is back: there is a new endpoint, in the place of the old.
	again := ask(3)
	require.NotEqual(t, es[0], again[0])
	require.NoError(t, again[0].AMSend(0, nil, nil).Err())
	assert.Len(t, w.t.eps, eps)
}
