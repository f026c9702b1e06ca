package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// A flush does not say that all went well while a transfer was refused whose
// request was dropped.
func TestFlushReportsWhatWasRefused(t *testing.T) {
	bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
		ctx := context.Background()
		a, _, ep := newPair(t, "shm", mode)
		key := func(access ucp.Access) *ucp.RemoteKey {
			m, err := ucp.ContextOf(a).Allocate(64, ucp.MemConfig{Access: access})
			require.NoError(t, err)
			k, err := ep.UnpackKey(m.Key())
			require.NoError(t, err)
			return k
		}
		k, readOnly := key(0), key(ucp.AccessRemoteGet)
		flushes := map[string]func() error{
			"endpoint": func() error { return ep.Flush().Wait(ctx) },
			"worker":   func() error { return a.Flush().Wait(ctx) },
		}
		for name, refuse := range map[string]struct {
			post func() ucp.Request
			err  error
		}{
			"bounds":       {func() ucp.Request { return k.Put(make([]byte, 8), 60) }, ucp.ErrInvalid},
			"bounds, get":  {func() ucp.Request { return k.Get(make([]byte, 65), 0) }, ucp.ErrInvalid},
			"bounds, word": {func() ucp.Request { return k.PutUint64(1, 64) }, ucp.ErrInvalid},
			"right":        {func() ucp.Request { return readOnly.Put(make([]byte, 8), 0) }, ucp.ErrRemoteAccess},
			"outside memory": {func() ucp.Request {
				return k.PutWith(make([]byte, 8), 0, ucp.Opts{Mem: closedMemory(t, a)})
			}, ucp.ErrInvalid},
		} {
			for by, flush := range flushes {
				t.Run(name+"/"+by, func(t *testing.T) {
					require.NoError(t, flush())
					refuse.post()
					require.NoError(t, k.Put(make([]byte, 8), 0).Wait(ctx), "others go on")
					assert.ErrorIs(t, flush(), refuse.err)
					assert.NoError(t, flush(), "reported once")

					require.ErrorIs(t, refuse.post().Wait(ctx), refuse.err)
					assert.NoError(t, flush(), "the program knows")
				})
			}
		}
	})
}

// A refused get of a word is an unclaimed completion with a result. When the program consumes it, its
// slot serves another operation, which the unclaimed completions must not end.
func TestRefusedWordIsConsumed(t *testing.T) {
	bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
		ctx := context.Background()
		a, b, ep := newPair(t, "self", mode)
		m, err := ucp.ContextOf(a).Allocate(64, ucp.MemConfig{})
		require.NoError(t, err)
		k, err := ep.UnpackKey(m.Key())
		require.NoError(t, err)
		for name, consume := range map[string]func(f ucp.Fetch[uint64]){
			"wait": func(f ucp.Fetch[uint64]) {
				_, err := f.Wait(ctx)
				require.ErrorIs(t, err, ucp.ErrInvalid)
				_, err = f.Wait(ctx)
				require.ErrorIs(t, err, ucp.ErrStale)
			},
			"list": func(f ucp.Fetch[uint64]) {
				_, err := ucp.WaitAny(ctx, []ucp.AnyRequest{f.Any()})
				require.ErrorIs(t, err, ucp.ErrInvalid)
			},
			"drop": ucp.Fetch[uint64].Drop,
		} {
			before := k.Put(nil, 65)
			word := k.GetUint64(64)
			consume(word)
			recv := b.TagRecv(make([]byte, 8), 1, exact)
			for range 1100 { // more than are kept
				k.Put(nil, 65)
			}
			require.False(t, recv.Done(), name)
			require.NoError(t, before.Err(), "not kept any more")
			require.ErrorIs(t, ep.Flush().Wait(ctx), ucp.ErrInvalid)
			require.NoError(t, ep.Flush().Wait(ctx))
			require.NoError(t, ep.TagSendUint64(1, 1).Wait(ctx))
			_, err := recv.Wait(ctx)
			require.NoError(t, err, name)

			consume(k.GetUint64(64))
			k.Put(nil, 65)
			require.ErrorIs(t, ep.Flush().Wait(ctx), ucp.ErrInvalid, "the list ends")
		}
	})
}

// closedMemory is memory that covers nothing any more.
func closedMemory(t *testing.T, w *ucp.Worker) *ucp.MemHandle {
	m, err := ucp.ContextOf(w).Allocate(64, ucp.MemConfig{})
	require.NoError(t, err)
	require.NoError(t, m.Close())
	return m
}
