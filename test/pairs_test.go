//go:build linux

package test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// TestFewPairs: a process that may map one pair at a time talks to several others
// in turn, and loses nothing while pairs go to sleep and come back.
func TestFewPairs(t *testing.T) {
	var others [3]*bystander
	for i := range others {
		others[i] = newBystander(t)
	}
	t.Setenv("UCX_SHM_MAX_PAIRS", "1")
	before := takeCensus(t)
	s := open(t, ucp.ThreadSingle)
	var es [len(others)]ucp.Endpoint
	for i, b := range others {
		es[i] = s.dial(t, b.address)
		b.p.say(s.address())
		b.p.expect("answering")
	}
	for round := range 60 {
		for i, e := range es {
			require.NoError(t, pingPong(bounded(t), s.w, e, 1+round%5), "round %d with process %d", round, i)
		}
		for range 1000 * (round % 3) {
			s.w.Progress()
		}
	}
	for _, c := range s.w.Stats().Snapshot() {
		if c.Value > 0 {
			t.Logf("%s %d", c.Name, c.Value)
		}
	}
	require.NoError(t, s.x.Close())
	requireBack(t, before)
}
