package rc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each entry of the table: the changes with an effect are listed, all others have none.
func TestQPLife(t *testing.T) {
	type from struct {
		state  qpLife
		change qpChange
	}
	effects := map[from]qpLife{
		{qpUnread, qpRead}:    qpReading,
		{qpUnread, qpRetire}:  qpDraining,
		{qpUnread, qpClose}:   qpClosed,
		{qpReading, qpRetire}: qpDraining,
		{qpReading, qpClose}:  qpClosed,
		{qpDraining, qpClose}: qpClosed,
	}
	for s := range numQPLives {
		for c := range numQPChanges {
			l, want := s, s
			to, effect := effects[from{s, c}]
			if effect {
				want = to
			}
			require.Equal(t, effect, l.step(c), "state %d, change %d", s, c)
			require.Equal(t, want, l, "state %d, change %d", s, c)
			require.GreaterOrEqual(t, l, s, "a QP is not used again")
		}
	}
}
