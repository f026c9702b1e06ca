package ucp_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// A handle of an operation that has ended never reaches the one that took its
// place.
func TestEndedRequestNeverReachesItsHeir(t *testing.T) {
	for name, c := range map[string]struct {
		mode ucp.ThreadMode
		room int
		end  error
	}{
		"single":            {ucp.ThreadSingle, 8, nil},
		"multi":             {ucp.ThreadMulti, 8, nil},
		"single, truncated": {ucp.ThreadSingle, 4, ucp.ErrTruncated}, // the slot goes another way
		"multi, truncated":  {ucp.ThreadMulti, 4, ucp.ErrTruncated},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			w, _, ep := newPair(t, "self", c.mode)
			old := w.TagRecv(make([]byte, c.room), 1, exact)
			require.NoError(t, ep.TagSendUint64(1, 1).Wait(ctx))
			_, err := old.Wait(ctx)
			require.ErrorIs(t, err, c.end)

			heir := w.TagRecv(make([]byte, 8), 2, exact)
			assert.True(t, old.Done())
			assert.NoError(t, old.Err())
			old.Cancel()
			old.Drop()
			_, err = old.Wait(ctx)
			assert.ErrorIs(t, err, ucp.ErrStale)
			assert.False(t, old.Notify(func(ucp.Completion) { t.Error("called for another operation") }, 0))
			assert.False(t, heir.Done(), "it was reached through the old handle")

			require.NoError(t, ep.TagSendUint64(2, 2).Wait(ctx))
			m, err := heir.Wait(ctx)
			require.NoError(t, err)
			assert.Equal(t, ucp.Tag(2), m.Tag)
		})
	}
}
