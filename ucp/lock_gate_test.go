//go:build race

package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucp/internal/lock"
)

// With ThreadMulti each call of a short message's way takes one lock, once: the post, the send, and the
// wait with the pass that receives it.
func TestGateMultiTakesOneLock(t *testing.T) {
	_, b, ep := newPair(t, "shm", ucp.ThreadMulti)
	ctx, in, out := context.Background(), make([]byte, 8), make([]byte, 8)
	var posts, sends, waits uint64
	count := func(n *uint64, f func()) {
		before := lock.Unlocks.Load()
		f()
		*n += lock.Unlocks.Load() - before
	}
	pair := func() {
		var r ucp.RecvRequest
		count(&posts, func() { r = b.TagRecv(in, 1, exact) })
		count(&sends, func() { ep.TagSend(out, 1) })
		count(&waits, func() {
			_, err := r.Wait(ctx)
			require.NoError(t, err)
		})
	}
	for range 1000 { // connects, and sends the address
		pair()
	}
	posts, sends, waits = 0, 0, 0
	const pairs = 100
	for range pairs {
		pair()
	}
	assert.EqualValues(t, pairs, posts)
	assert.EqualValues(t, pairs, sends)
	assert.EqualValues(t, pairs, waits)
}
