package ucp_test

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// senderTransports are the transports of TestThread.
var senderTransports = []string{"shm", "rc", "ud"}

// A Thread sends for its worker: messages of all lengths arrive in order, AM.From leads to the
// worker, and put, get, atomics and flush work through it.
func TestThread(t *testing.T) {
	for _, transport := range senderTransports {
		t.Run(transport, func(t *testing.T) {
			x, err := ucp.Open(ucp.Config{Providers: provider(transport)})
			require.NoError(t, err)
			defer func() { require.NoError(t, x.Close()) }()
			a, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
			require.NoError(t, err)
			b, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
			require.NoError(t, err)
			ep, err := a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
			require.NoError(t, err)
			ctx := context.Background()
			th, err := a.NewThread()
			require.NoError(t, err)
			et := ep.On(th)
			assert.Equal(t, et, ep.On(th), "one handle")
			drive := func(rs ...interface{ Done() bool }) {
				for _, r := range rs {
					for !r.Done() {
						a.Progress()
						b.Progress()
						th.Progress()
					}
				}
			}

			for _, n := range []int{0, 8, 100, 9000, 100_000, 1 << 20} {
				p, q := make([]byte, n), make([]byte, n)
				for i := range p {
					p[i] = byte(i*7 + n)
				}
				r := b.TagRecv(q, ucp.Tag(n), ^ucp.Tag(0))
				s := et.TagSend(p, ucp.Tag(n))
				drive(r, s)
				m, err := r.Wait(ctx)
				require.NoError(t, err)
				require.NoError(t, s.Wait(ctx))
				assert.Equal(t, n, m.Len)
				assert.Equal(t, p, q)
				sync := b.TagRecv(q, 1, ^ucp.Tag(0))
				s = et.TagSendSync(p, 1)
				drive(sync, s)
				require.NoError(t, s.Wait(ctx))
				_, err = sync.Wait(ctx)
				require.NoError(t, err)
			}

			// AM.From is an endpoint to the worker, not to the Thread.
			replied := false
			require.NoError(t, b.HandleAM(1, func(m *ucp.AM) { m.From.AMSend(2, nil, []byte("reply")) }))
			require.NoError(t, a.HandleAM(2, func(m *ucp.AM) { replied = string(m.Data) == "reply" }))
			s := et.AMSendWith(1, nil, []byte("ask"), ucp.Opts{Flags: ucp.WantReply})
			drive(s)
			for !replied {
				a.Progress()
				b.Progress()
				th.Progress()
			}

			// Memory.
			mem, err := x.Allocate(4096, ucp.MemConfig{})
			require.NoError(t, err)
			key, err := ep.UnpackKey(mem.Key())
			require.NoError(t, err)
			kt := key.On(th)
			assert.Same(t, kt, key.On(th), "resolved once")
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], 7)
			drive(kt.Put(word[:], 8), kt.PutUint64(9, 16), et.Flush())
			assert.EqualValues(t, 7, mem.Load64(8))
			assert.EqualValues(t, 9, mem.Load64(16))
			at, err := ucp.AtomicAt[uint64](kt, 16)
			require.NoError(t, err)
			f := at.FetchAdd(3)
			drive(f)
			old, err := f.Wait(ctx)
			require.NoError(t, err)
			assert.EqualValues(t, 9, old)
			assert.EqualValues(t, 12, mem.Load64(16))

			// Close flushes, and later uses fail.
			msg := make([]byte, 8)
			r := b.TagRecv(msg, 5, ^ucp.Tag(0))
			require.NoError(t, et.TagSendUint64(5, 5).Err())
			var done sync.WaitGroup
			done.Go(func() {
				_, err := r.Wait(ctx)
				assert.NoError(t, err)
			})
			require.NoError(t, th.Close())
			done.Wait()
			require.NoError(t, th.Close())
			require.ErrorIs(t, et.TagSendUint64(5, 5).Err(), ucp.ErrClosed)
			require.ErrorIs(t, kt.PutUint64(1, 0).Err(), ucp.ErrClosed)
			require.ErrorIs(t, key.On(th).PutUint64(1, 0).Err(), ucp.ErrClosed)
			require.NoError(t, mem.Close())
		})
	}
}
