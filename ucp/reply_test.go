package ucp

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// An answer goes by another connection where the one by which answers went is over
// and this was not reported yet. Where others had gone by it before, which may be lost,
// who asked is told.
func TestAnswerByAnotherConnection(t *testing.T) {
	for i := range 4 {
		get, before := i&1 != 0, i&2 != 0
		p := newSWPair(t, "rc", 64)
		require.Zero(t, p.word(0).Or(1))
		f := p.word(0).FetchXor(2)
		p.until(f.Done)
		old := p.b.t.rxConns[slices.IndexFunc(p.b.t.rxConns, func(rx *rxConn) bool { return rx != nil })].replyLane
		require.NotZero(t, old)
		first := p.k.atomic.lane
		p.a.t.laneOf.remove(p.a.t.lanes, first) // as if it had failed here
		e, err := p.a.NewEndpoint(p.b.Address(), EndpointConfig{})
		require.NoError(t, err)
		k, err := e.UnpackKey(p.m.Key())
		require.NoError(t, err)
		require.NotEqual(t, first, k.atomic.lane)
		p.must(e.Flush())
		w, err := AtomicAt[uint64](k, 0)
		require.NoError(t, err)
		if before {
			f = w.FetchXor(0)
			p.until(f.Done)
		}
		if get {
			k.rma.emulOnly, k.rma.rkey = true, k.atomic.emulKey
			k.rma.setEmulationLimits()
			k.closeFast()
			f = k.GetUint64(0)
		} else {
			f = w.FetchXor(4)
		}
		for range 100 {
			p.a.Progress()
		}
		require.Equal(t, ucs.OK, p.b.t.lanes[old].transport().Flush(uct.FlushCancel, 0))
		p.until(f.Done)
		v, err := f.Wait(p.ctx)
		require.NoError(t, err)
		require.EqualValues(t, 3, v)
		p.until(func() bool { return p.e.Info().Err != nil })
		if before {
			p.until(func() bool { return e.Info().Err != nil })
			require.ErrorIs(t, e.Info().Err, ErrPeerFailed)
			continue
		}
		require.NoError(t, e.Info().Err)
		p.must(e.Flush())
	}
}
