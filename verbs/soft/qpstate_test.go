package soft

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

// qpStates are all states of a queue pair.
var qpStates = []qpState{qpReset, qpInit, qpRTR, qpRTS, qpSQD, qpDraining, qpSQE, qpErr, qpClosed}

// TestQPTransitions: setState makes each transition of the table and no other.
func TestQPTransitions(t *testing.T) {
	for _, from := range qpStates {
		for _, to := range qpStates {
			var q qp
			q.state.Store(uint32(from))
			if slices.Contains(qpTransitions[from], to) {
				q.setState(to)
				assert.Equal(t, to, qpState(q.state.Load()))
				continue
			}
			assert.Panics(t, func() { q.setState(to) }, "%v to %v", from, to)
			assert.Equal(t, from, qpState(q.state.Load()))
		}
	}
	for s, want := range map[qpState]verbs.QPState{qpDraining: verbs.StateSQD, qpClosed: verbs.StateReset} {
		var q qp
		q.state.Store(uint32(s))
		assert.Equal(t, want, q.loadState(), s.String())
	}
}

// TestQPLife: each transition that a program causes, and the state that it sees.
func TestQPLife(t *testing.T) {
	modify := func(e *end, to verbs.QPState) {
		t.Helper()
		a, mask := verbs.QPAttr{State: to}, verbs.AttrState
		if to == verbs.StateSQD {
			a.EnSQDAsyncNotify, mask = true, mask|verbs.AttrEnSQDAsyncNotify
		}
		require.NoError(t, e.qp.Modify(&a, mask))
	}
	is := func(e *end, want qpState) {
		t.Helper()
		require.Equal(t, want, qpState(e.qp.(*qp).state.Load()))
		if want != qpClosed {
			require.Equal(t, verbs.QPState(want), e.qp.Query().State)
		}
	}
	p := New(Config{Link: LinkInproc, Engine: EngineInline})
	a, b := newEnd(t, p, verbs.RC, 64), newEnd(t, p, verbs.RC, 64)
	is(a, qpReset)
	modify(a, verbs.StateReset)
	is(a, qpReset)
	for range 2 {
		a.connect(b)
		b.connect(a)
		is(a, qpRTS)
		a.send(shortSend(1)) // not acknowledged: the send queue does not drain
		modify(a, verbs.StateSQD)
		is(a, qpDraining)
		b.recv(1, 0, 64)
		require.Eventually(t, func() bool {
			b.cq.Poll(nil)
			a.cq.Poll(nil)
			return qpState(a.qp.(*qp).state.Load()) == qpSQD
		}, 1e10, 1)
		modify(a, verbs.StateRTS)
		is(a, qpRTS)
		modify(a, verbs.StateErr)
		is(a, qpErr)
		modify(a, verbs.StateReset)
		is(a, qpReset)
		modify(b, verbs.StateReset)
	}
	u, _, way := datagrams(t, p)
	require.NoError(t, way.Close())
	u.send(verbs.SendWR{Op: verbs.OpSend, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{u.sge(0, 8)}}) // without an address handle
	is(u, qpSQE)
	modify(u, verbs.StateRTS)
	is(u, qpRTS)
	require.NoError(t, a.qp.Close())
	is(a, qpClosed)
	require.NoError(t, a.qp.Close())
	require.Error(t, a.qp.Modify(&verbs.QPAttr{State: verbs.StateInit}, verbs.AttrState))
}
