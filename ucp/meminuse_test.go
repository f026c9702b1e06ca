package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// Memory that an operation of the program has cannot be closed under it.
func TestCloseOfMemoryInUse(t *testing.T) {
	for _, transport := range []string{"self", "shm"} {
		t.Run(transport, func(t *testing.T) {
			ctx := context.Background()
			_, b, ep := newPair(t, transport, ucp.ThreadMulti)
			m, err := ucp.ContextOf(b).Allocate(64, ucp.MemConfig{})
			require.NoError(t, err)
			other, err := ucp.ContextOf(b).Allocate(64, ucp.MemConfig{})
			require.NoError(t, err)

			r := b.TagRecv(m.Bytes()[8:16], 1, exact)
			require.ErrorIs(t, m.Close(), ucp.ErrBusy)
			require.NotNil(t, m.Bytes(), "it was closed nevertheless")
			require.NoError(t, other.Close(), "what nobody has is closed")

			require.NoError(t, ep.TagSendUint64(7, 1).Wait(ctx))
			_, err = r.Wait(ctx)
			require.NoError(t, err)
			assert.Equal(t, uint64(7), m.Load64(8))
			r = b.TagRecvV([][]byte{make([]byte, 8), m.Bytes()[8:16]}, 1, exact)
			require.ErrorIs(t, m.Close(), ucp.ErrBusy, "a piece of a receive")
			r.Cancel()
			r.Drop()
			require.NoError(t, m.Close())
			require.NoError(t, m.Close(), "twice")
			assert.Nil(t, m.Bytes())
		})
	}
}
