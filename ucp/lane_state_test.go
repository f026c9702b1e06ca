package ucp

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/shm"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// The fast path is open if and only if the lane is open and no reason is left.
func TestLaneFastPath(t *testing.T) {
	for s := range numLaneStates {
		for r := slowReasons(0); r <= allSlowReasons; r++ {
			l := laneLife{tagFast: 100, amFast: 50, state: s}
			l.setSlow(r, true)
			assert.Equal(t, r, l.slow)
			want := -1
			if s == laneOpen && r == 0 {
				want = 100
			}
			assert.Equal(t, want, l.maxShort, "%v %b", s, r)
			assert.Equal(t, want == 100, l.amShort == 50, "%v %b", s, r)
			for one := slowReasons(1); one < allSlowReasons; one <<= 1 {
				assert.Equal(t, r&one != 0, l.is(one))
				less := l
				less.setSlow(one, false)
				assert.Equal(t, r&^one, less.slow)
				assert.Equal(t, s == laneOpen && r&^one == 0, less.maxShort >= 0, "%v %b", s, less.slow)
			}
		}
	}
}

// The fast path takes what the transport sends in one piece, and the settings have sent at once.
func TestFastPathLengths(t *testing.T) {
	ps := []uct.Component{shm.Component()}
	for thresh, want := range map[string][2]int{
		"inf":  {math.MaxInt, math.MaxInt},
		"64k":  {math.MaxInt, math.MaxInt},
		"1000": {1000, 1000},
		"0":    {0, 0},
		"auto": {2 << 10, math.MaxInt},
	} {
		p := newIdlePairOver(t, ps, 8, "UCX_RNDV_THRESH="+thresh)
		p.must(p.e.Flush())
		l := p.lane()
		assert.Equal(t, min(want[0], l.ifaceMaxShort), l.maxShort, thresh)
		assert.Equal(t, min(want[1], l.ifaceMaxShort), l.amShort, thresh)
	}
}

// Every transition either happens, with the fast path that belongs to the new state, or
// panics and changes nothing.
func TestLaneTransitions(t *testing.T) {
	want := map[laneState][]laneState{
		laneClosed:   {laneOpen},
		laneOpen:     {laneDraining, laneFailed, laneClosed},
		laneDraining: {laneOpen, laneFailed, laneClosed},
		laneFailed:   {laneClosed},
	}
	for from := range numLaneStates {
		for to := range numLaneStates {
			l := laneLife{tagFast: 8, amFast: 8, state: from}
			l.update()
			if !slices.Contains(want[from], to) {
				assert.Panics(t, func() { l.enter(to) }, "%v to %v", from, to)
				assert.Equal(t, from, l.state)
				continue
			}
			l.enter(to)
			assert.Equal(t, to, l.state)
			assert.Equal(t, to == laneOpen, l.maxShort >= 0, "%v to %v", from, to)
			assert.Equal(t, to == laneFailed, l.status() == ucs.PeerFailed)
		}
	}
}

// Every transition of an endpoint either happens, or panics and changes nothing.
func TestEndpointTransitions(t *testing.T) {
	want := map[epState][]epState{
		epFree:   {epIdle},
		epIdle:   {epFree, epActive},
		epActive: {epFree, epFailed},
		epFailed: {epFree},
	}
	for from := range numEpStates {
		for to := range numEpStates {
			s := epSlot{state: from}
			if slices.Contains(want[from], to) {
				s.enter(to)
				assert.Equal(t, to, s.state)
				continue
			}
			assert.Panics(t, func() { s.enter(to) }, "%d to %d", from, to)
			assert.Equal(t, from, s.state)
		}
	}
}

// A worker closes once, in two steps.
func TestWorkerTransitions(t *testing.T) {
	for from := range numWorkerStates {
		for to := range numWorkerStates + 1 {
			var l workerLife
			l.state.Store(from)
			if to == from+1 && to < numWorkerStates {
				l.enter(to)
				assert.Equal(t, to, l.state.Load())
				assert.True(t, l.closing())
				assert.Equal(t, to == workerClosed, l.closed())
				continue
			}
			assert.Panics(t, func() { l.enter(to) }, "%d to %d", from, to)
			assert.Equal(t, from, l.state.Load())
		}
	}
}

// Which lanes stay open for work in progress alone, and for their pending queue alone.
func TestLaneReferences(t *testing.T) {
	for s := range numLaneStates {
		for k := range 16 {
			l := laneLife{state: s, refs: k & 1, replyRefs: k >> 1 & 1, uses: k >> 2 & 1, pending: k >> 3}
			assert.Equal(t, s == laneDraining || s == laneFailed && l.refs == 0 && l.replyRefs == 0, l.unreferenced())
			assert.Equal(t, s == laneDraining && l.uses == 0 && l.pending == 1, l.drainsPending())
		}
	}
	var l laneLife
	l.refs = 2
	assert.False(t, l.unretain())
	assert.True(t, l.unretain())
	assert.True(t, l.unretain(), "the count does not become negative")
	l.use()
	assert.Equal(t, laneLife{uses: 1}, l)
	l.unuse()
	assert.Zero(t, l)
}

// busy is an endpoint without room. It keeps what waits.
type busy struct {
	*full
	waiting []uct.Token
}

func (b *busy) PendingAdd(t uct.Token) uct.Status {
	b.waiting = append(b.waiting, t)
	return ucs.OK
}

func (b *busy) PendingPurge(f func(uct.Token)) {
	for _, t := range b.waiting {
		f(t)
	}
}

// A flush on a lane that drains its pending queue, and that fails while memory of the peer
// is read on it, ends with the error. The lane closes when the read has ended.
func TestFlushOfDrainingLaneThatFails(t *testing.T) {
	wi, r, e := recordKnown(t)
	w := wi.worker()
	first := e.TagSend([]byte{1}, 1)
	require.True(t, first.Done())
	i := w.t.eps[w.t.endpoint(e)].lane
	w.t.lanes[i].ep = &busy{full: &full{recorder: r}}
	w.t.rxConns[1].reply(control{id: wire.FlowControl}) // it belongs to no endpoint
	f := w.Flush()
	require.False(t, f.Done())
	e.Abort(nil)
	require.Equal(t, laneDraining, w.t.lanes[i].state)
	require.Equal(t, -1, w.t.lanes[i].maxShort)

	w.t.lanes[i].use() // a read
	wi.HandleFailure(uct.Failure{Endpoint: w.t.lanes[i].transport(), Err: ErrPeerFailed})
	require.Equal(t, laneFailed, w.t.lanes[i].state)
	require.True(t, f.Done())
	require.ErrorIs(t, f.Err(), ErrPeerFailed)
	w.t.lanes[i].unuse()
	w.t.closeIfDrained(i)
	require.Equal(t, laneClosed, w.t.lanes[i].state)
	require.Zero(t, w.t.numDraining)
}
