package ud

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each entry of the table: the changes with an effect are listed, all others have none.
func TestEndpointTransitions(t *testing.T) {
	type from struct {
		state  epState
		change epChange
	}
	effects := map[from]epState{
		{epOpen, epStop}:        epFinishing,
		{epOpen, epDetach}:      epDetached,
		{epFinishing, epDetach}: epDetached,
	}
	for s := range numEPStates {
		for c := range numEPChanges {
			got, want := s, s
			to, effect := effects[from{s, c}]
			if effect {
				want = to
			}
			require.Equal(t, effect, got.change(c), "state %d, change %d", s, c)
			require.Equal(t, want, got, "state %d, change %d", s, c)
		}
	}
}
