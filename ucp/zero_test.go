package ucp_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// TestZeroValues: what a program gets beside an error that it did not read, or
// never made, answers as what was closed does.
func TestZeroValues(t *testing.T) {
	var e ucp.Endpoint
	buf, ctx := make([]byte, 8), context.Background()
	for name, post := range map[string]func() ucp.Request{
		"tag send":                 func() ucp.Request { return e.TagSend(buf, 1) },
		"tag send, long":           func() ucp.Request { return e.TagSend(make([]byte, 1<<20), 1) },
		"tag send inline":          func() ucp.Request { return e.TagSendInline(buf, 1) },
		"tag send uint64":          func() ucp.Request { return e.TagSendUint64(1, 1) },
		"tag send of pieces":       func() ucp.Request { return e.TagSendV([][]byte{buf, buf}, 1) },
		"tag send sync":            func() ucp.Request { return e.TagSendSync(buf, 1) },
		"tag send with":            func() ucp.Request { return e.TagSendWith(buf, 1, ucp.Opts{}) },
		"tag send with rendezvous": func() ucp.Request { return e.TagSendWith(buf, 1, ucp.Opts{Flags: ucp.ForceRendezvous}) },
		"am send":                  func() ucp.Request { return e.AMSend(1, nil, buf) },
		"am send, header":          func() ucp.Request { return e.AMSend(1, buf, buf) },
		"am send with":             func() ucp.Request { return e.AMSendWith(1, buf, buf, ucp.Opts{Flags: ucp.WantReply}) },
		"flush":                    func() ucp.Request { return e.Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			r := post()
			require.True(t, r.Done())
			require.ErrorIs(t, r.Err(), ucp.ErrClosed)
			require.ErrorIs(t, r.Wait(ctx), ucp.ErrClosed)
			require.ErrorIs(t, r.Finish(ctx), ucp.ErrClosed)
			assert.Contains(t, r.String(), "closed")
			assert.False(t, r.Notify(func(ucp.Completion) {}, 1))
			r.Cancel()
		})
	}
	t.Run("the other calls", func(t *testing.T) {
		e.Fence()
		e.Abort(errors.New("why"))
		require.NoError(t, e.Close())
		assert.Zero(t, e.MaxInline())
		require.ErrorIs(t, e.Info().Err, ucp.ErrClosed)
		_, err := e.UnpackKey(nil)
		require.Error(t, err)
	})
	t.Run("a remote key", func(t *testing.T) {
		var k *ucp.RemoteKey
		assert.Zero(t, k.Len())
		assert.Zero(t, k.Base())
		_, err := k.Bytes()
		require.ErrorIs(t, err, ucp.ErrClosed)
		require.NoError(t, k.Close())
		_, err = ucp.AtomicAt[uint64](k, 0)
		require.ErrorIs(t, err, ucp.ErrClosed)
	})
	t.Run("atomics of 32 bits", zeroAtomic[uint32])
	t.Run("atomics of 64 bits", zeroAtomic[uint64])
	t.Run("results", func(t *testing.T) {
		require.NoError(t, ucp.Request{}.Wait(ctx))
		_, err := ucp.RecvRequest{}.Wait(ctx)
		require.ErrorIs(t, err, ucp.ErrStale)
		_, err = ucp.MatchedMessage{}.Recv(buf).Wait(ctx)
		require.ErrorIs(t, err, ucp.ErrStale)
		ucp.MatchedMessage{}.Drop()
		var k ucp.RetainedAM
		assert.Nil(t, k.Header())
		assert.Nil(t, k.Bytes())
		_, err = k.RecvInto(buf).Wait(ctx)
		require.ErrorIs(t, err, ucp.ErrStale)
		k.Refuse(nil)
		k.Release()
	})
}

func zeroAtomic[T ucp.Word](t *testing.T) {
	var a ucp.Atomic[T]
	for name, r := range map[string]ucp.Request{"add": a.Add(1), "and": a.And(1), "or": a.Or(1), "xor": a.Xor(1)} {
		require.True(t, r.Done(), name)
		require.ErrorIs(t, r.Wait(t.Context()), ucp.ErrClosed, name)
		assert.Contains(t, r.String(), "closed", name)
	}
	for name, f := range map[string]ucp.Fetch[T]{
		"fetch-add": a.FetchAdd(1), "fetch-and": a.FetchAnd(1), "fetch-or": a.FetchOr(1), "fetch-xor": a.FetchXor(1),
		"swap": a.Swap(1), "compare-and-swap": a.CompareAndSwap(0, 1), "load": a.Load(),
	} {
		require.True(t, f.Done(), name)
		v, err := f.Wait(t.Context())
		require.ErrorIs(t, err, ucp.ErrClosed, name)
		require.Zero(t, v, name)
		f.Drop()
	}
}
