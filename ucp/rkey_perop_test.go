package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
)

// Both ways of resolving a key do the same, and which one it is, is the
// setting's.
func TestKeyResolvedAtEachOperation(t *testing.T) {
	for setting, late := range map[string]bool{"y": false, "n": true} {
		t.Run(setting, func(t *testing.T) {
			t.Setenv("UCX_RKEY_PRERESOLVE", setting)
			ctx := context.Background()
			a, b, ep := newPair(t, "shm", ucp.ThreadSingle)
			m, err := ucp.ContextOf(a).Allocate(64, ucp.MemConfig{})
			require.NoError(t, err)
			k, err := ep.UnpackKey(m.Key())
			require.NoError(t, err)
			assert.Equal(t, late, ucp.ResolvesLate(k))

			require.NoError(t, k.Put([]byte("8 bytes!"), 0).Wait(ctx))
			require.NoError(t, k.Put([]byte("and sixteen more"), 8).Wait(ctx))
			require.NoError(t, k.PutUint64(7, 24).Wait(ctx))
			got := make([]byte, 24)
			require.NoError(t, k.Get(got, 0).Wait(ctx))
			assert.Equal(t, "8 bytes!and sixteen more", string(got))
			v, err := k.GetUint64(24).Wait(ctx)
			require.NoError(t, err)
			assert.Equal(t, uint64(7), v)
			word, err := ucp.AtomicAt[uint64](k, 24)
			require.NoError(t, err)
			require.NoError(t, word.Add(1).Wait(ctx))
			v, err = word.FetchAdd(1).Wait(ctx)
			require.NoError(t, err)
			assert.Equal(t, uint64(8), v)
			half, err := ucp.AtomicAt[uint32](k, 32)
			require.NoError(t, err)
			require.NoError(t, half.Add(3).Wait(ctx))
			require.NoError(t, ep.Flush().Wait(ctx))
			assert.Equal(t, uint64(9), m.Load64(24))
			assert.Equal(t, uint64(3), m.Load64(32))

			require.NoError(t, b.Close())
			require.NoError(t, k.Close())
			assert.ErrorIs(t, k.Put(got[:8], 0).Wait(ctx), ucp.ErrClosed)
		})
	}
}

// Passes call the interfaces that have connections, or all if the setting says
// so.
func TestIdleSkip(t *testing.T) {
	for setting, want := range map[string]int{"y": 1, "n": 2} {
		t.Run(setting, func(t *testing.T) {
			t.Setenv("UCX_IDLE_SKIP", setting)
			t.Setenv("UCX_TLS", "self,shm")
			c, err := ucp.Open(ucp.Config{Providers: transports.All()})
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			a, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
			require.NoError(t, err)
			b, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
			require.NoError(t, err)
			ep, err := a.NewEndpoint(b.Address(), ucp.EndpointConfig{Eager: true})
			require.NoError(t, err)
			require.NoError(t, ep.TagSendUint64(1, 1).Wait(context.Background()))
			assert.Equal(t, want, ucp.PolledIfaces(a))
		})
	}
}

// An interface is left out of passes again when its last endpoint is closed.
func TestIdleLanesAreNotPolled(t *testing.T) {
	w, _, ep := newPair(t, "self", ucp.ThreadSingle)
	assert.Zero(t, ucp.PolledIfaces(w))
	require.NoError(t, ep.TagSendUint64(1, 1).Wait(context.Background()))
	assert.Equal(t, 1, ucp.PolledIfaces(w))
	require.NoError(t, ep.Close())
	assert.Zero(t, ucp.PolledIfaces(w))
}
