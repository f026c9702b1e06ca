package ucp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRareProgressSeesNewPeer: a program that calls Progress once in a millisecond receives the first message of a new peer
// within some calls, also of a second peer, when it is connected already.
func TestRareProgressSeesNewPeer(t *testing.T) {
	newOne := shmWorkers(t)
	to := newOne()
	for tag := range Tag(3) {
		from := newOne()
		e, err := from.NewEndpoint(to.Address(), EndpointConfig{})
		require.NoError(t, err)
		e.TagSendUint64(1, tag)
		calls := 0
		for r := to.TagRecv(make([]byte, 8), tag, ^Tag(0)); !r.Done(); calls++ {
			require.Less(t, calls, 60, "peer %d", tag)
			for start := time.Now(); time.Since(start) < time.Millisecond; {
				from.Progress()
			}
			to.Progress()
		}
		t.Logf("peer %d: %d calls", tag, calls)
	}
}
