package machine

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// walked counts the transitions that the simulations made: [state before][message][state after].
var walked [StateFailed + 1][numMsgKinds][StateFailed + 1]int

// walk requires that the table has the transition that a message made.
func walk(t testing.TB, before State, ev Event, after State) {
	if ev.Kind != EventReceive || before == after {
		return
	}
	kind := ev.Msg.Kind
	if kind >= numMsgKinds {
		kind = 0
	}
	require.Contains(t, transitions[before][kind].next, after, "%v: %v leads to %v", before, kind, after)
	walked[before][kind][after]++
}

// TestTransitions holds the form of the tables: a row for each state, no transition out of the
// states that end, none of an ignored message, and in each other cell a role.
func TestTransitions(t *testing.T) {
	require.Len(t, transitions, len(stateNames))
	require.Len(t, events, len(stateNames))
	for state, row := range transitions {
		for kind, cell := range row {
			next := cell.next
			require.True(t, slices.IsSorted(next))
			if State(state) >= StateClosed || cell.role == ignored {
				require.Empty(t, next, "%v: %v", State(state), MsgKind(kind))
			}
			for _, to := range next {
				require.Greater(t, to, State(state), "%v: %v leads back", State(state), MsgKind(kind))
			}
		}
	}
}

// TestEveryTransition makes each transition of the table at least once, whatever ran before: by the
// scenarios, by closes at every moment, and by a peer that sends anything at any time.
func TestEveryTransition(t *testing.T) {
	TestScenarios(t)
	TestCloseAtEveryMoment(t)
	runs := uint64(400_000)
	if testing.Short() {
		runs = 10_000 // too few for all
	}
	for seed := range runs {
		harass(t, seed, func(State) {})
	}
	for state, row := range transitions {
		for kind, cell := range row {
			for _, to := range cell.next {
				if walked[state][kind][to] == 0 && !testing.Short() {
					t.Errorf("%v: %v never leads to %v", State(state), MsgKind(kind), to)
				}
			}
		}
	}
}
