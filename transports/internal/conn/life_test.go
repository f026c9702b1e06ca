package conn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each entry of the table: the changes with an effect are listed, all others have none.
func TestTransitions(t *testing.T) {
	type from struct {
		state  Life
		change Change
	}
	effects := map[from]Life{
		{Open, HangUp}:      HungUp,
		{Open, Fail}:        Failing,
		{Open, Report}:      Ended,
		{Open, Release}:     Released,
		{HalfOpen, Confirm}: Open,
		{HalfOpen, HangUp}:  HungUp,
		{HalfOpen, Fail}:    Failing,
		{HalfOpen, Report}:  Ended,
		{HalfOpen, Release}: Released,
		{HungUp, Finish}:    Finished,
		{HungUp, Fail}:      Failing,
		{HungUp, Report}:    Ended,
		{HungUp, Release}:   Released,
		{Finished, Fail}:    Failing,
		{Finished, Report}:  Ended,
		{Finished, Release}: Released,
		{Failing, Report}:   Ended,
		{Failing, Release}:  Released,
		{Ended, Release}:    Released,
	}
	for s := range numLives {
		for c := range numChanges {
			l, want := s, s
			to, effect := effects[from{s, c}]
			if effect {
				want = to
			}
			require.Equal(t, effect, l.Step(c), "%v, change %d", s, c)
			require.Equal(t, want, l, "%v, change %d", s, c)
			require.False(t, s.Over() && !l.Over(), "%v, change %d: a connection does not come back", s, c)
		}
	}
}

// Only an end that is not reported yet, or that has no error, comes before Failing.
func TestOver(t *testing.T) {
	for s := range numLives {
		require.Equal(t, s == Failing || s == Ended || s == Released, s.Over(), s)
		require.NotEmpty(t, s.String())
	}
}
