package ucp_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// senderTransports are the transports of TestThread.
var senderTransports = []string{"shm", "rc", "ud"}

// newSender opens two workers, and an endpoint and a Thread of the first.
func newSender(t *testing.T, transport string) (x *ucp.Context, a, b *ucp.Worker, ep ucp.Endpoint, th *ucp.Thread) {
	x, err := ucp.Open(ucp.Config{Providers: provider(transport)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	a, err = x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	b, err = x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	ep, err = a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	th, err = a.NewThread()
	require.NoError(t, err)
	return x, a, b, ep, th
}

// A Thread sends for its worker: messages of all lengths arrive in order, AM.From leads to the
// worker, and put, get, atomics and flush work through it.
func TestThread(t *testing.T) {
	for _, transport := range senderTransports {
		t.Run(transport, func(t *testing.T) {
			x, a, b, ep, th := newSender(t, transport)
			ctx := context.Background()
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

// The sharing policy of a worker says what its Threads get, and which workers can have them.
func TestThreadSharing(t *testing.T) {
	for _, c := range []struct {
		policy string
		mode   ucp.ThreadMode
		err    error
	}{
		{"2xdynamic", ucp.ThreadSingle, nil},
		{"dynamic", ucp.ThreadSingle, nil},
		{"shared-dynamic", ucp.ThreadSingle, nil},
		{"static", ucp.ThreadMulti, nil},
		{"mpi-threads", ucp.ThreadMulti, nil},
		{"mpi-threads", ucp.ThreadSingle, ucp.ErrInvalid},
		{"mpi-everywhere", ucp.ThreadSingle, nil},
	} {
		t.Run(c.policy, func(t *testing.T) {
			p, err := sharing.Lookup(c.policy)
			require.NoError(t, err)
			x, err := ucp.Open(ucp.Config{Providers: provider("rc")})
			require.NoError(t, err)
			defer func() { require.NoError(t, x.Close()) }()
			a, err := x.NewWorker(ucp.WorkerConfig{Mode: c.mode, Sharing: p})
			require.NoError(t, err)
			b, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
			require.NoError(t, err)
			ep, err := a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
			require.NoError(t, err)
			th, err := a.NewThread()
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
				require.ErrorContains(t, err, c.policy)
				return
			}
			require.NoError(t, err)
			buf := make([]byte, 8)
			r := b.TagRecv(buf, 1, exact)
			s := ep.On(th).TagSendUint64(42, 1)
			for !r.Done() || !s.Done() {
				th.Progress()
				b.Progress()
			}
			require.NoError(t, s.Err())
			assert.EqualValues(t, 42, binary.LittleEndian.Uint64(buf))
			require.NoError(t, th.Close())
		})
	}
}

// countingDevice counts the contexts of a transport's devices, and refuses more than most.
type countingDevice struct {
	uct.Component
	most         int
	opened, open *int
}

type countedDomain struct {
	uct.Domain
	open *int
}

func (c countingDevice) OpenDomain(i uct.DomainInfo, conf uct.DomainConfig) (uct.Domain, error) {
	if *c.opened == c.most {
		return nil, errors.New("no further context")
	}
	d, err := c.Component.OpenDomain(i, conf)
	if err == nil {
		*c.opened++
		*c.open++
	}
	return countedDomain{d, c.open}, err
}

func (d countedDomain) Close() error {
	*d.open--
	return d.Domain.Close()
}

// With mpi-everywhere each Thread has a device context, which its close releases. One that cannot be opened is an
// error of NewThread.
func TestThreadContexts(t *testing.T) {
	var opened, open int
	set, _, err := config.Load(config.Options{Env: []string{"UCX_THREAD_SHARING=mpi-everywhere", "UCX_SOFT_LINK=inproc"}, Dirs: []string{}}, ucp.Tables(provider("rc"))...)
	require.NoError(t, err)
	x, err := ucp.Open(ucp.Config{Settings: set, Providers: []uct.Component{countingDevice{provider("rc")[0], 3, &opened, &open}}})
	require.NoError(t, err)
	require.Equal(t, 1, open)
	w, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	ep, err := w.NewEndpoint(w.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	var threads []*ucp.Thread
	for range 2 {
		th, err := w.NewThread()
		require.NoError(t, err)
		threads = append(threads, th)
		require.NoError(t, ep.On(th).TagSendUint64(1, 1).Err())
	}
	require.Equal(t, 3, open)
	_, err = w.NewThread()
	require.ErrorContains(t, err, "policy mpi-everywhere: open a device context of rc/")
	require.ErrorContains(t, err, "no further context; with policy 2xdynamic")
	require.NoError(t, threads[0].Close())
	require.Equal(t, 2, open)
	require.NoError(t, x.Close())
	require.Zero(t, open)
}

// A policy plans within the limits of the device.
func TestThreadLimits(t *testing.T) {
	set, _, err := config.Load(config.Options{Env: []string{"UCX_SOFT_ADAPTER=mlx5", "UCX_SOFT_LINK=inproc"}, Dirs: []string{}}, ucp.Tables(provider("rc"))...)
	require.NoError(t, err)
	x, err := ucp.Open(ucp.Config{Settings: set, Providers: provider("rc")})
	require.NoError(t, err)
	defer func() { require.NoError(t, x.Close()) }()
	w, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	for range sharing.MLX5().IndependentTDs {
		_, err = w.NewThread()
		require.NoError(t, err)
	}
	_, err = w.NewThread()
	require.ErrorIs(t, err, ucs.ErrNoResource)
	require.ErrorContains(t, err, "policy dynamic: 257 threads need 257 thread domains of level 1 in a context, and there are 256")
}

// Threads of one worker send at once, and threads open and close meanwhile. Each message arrives
// once, in the order of its thread.
func TestThreadsAtOnce(t *testing.T) {
	const threads, messages = 4, 2000
	a, b, ep := newPair(t, "shm", ucp.ThreadMulti)
	var all sync.WaitGroup
	for i := range threads {
		all.Go(func() {
			th, err := a.NewThread()
			if !assert.NoError(t, err) {
				return
			}
			e := ep.On(th)
			for n := range messages {
				if err := e.TagSendUint64(uint64(i)<<32|uint64(n), 1).Wait(t.Context()); !assert.NoError(t, err) {
					break
				}
				if n%500 == 0 {
					short, err := a.NewThread()
					assert.NoError(t, err)
					assert.NoError(t, ep.On(short).TagSendUint64(0, 2).Wait(t.Context()))
					assert.NoError(t, short.Close())
				}
			}
			assert.NoError(t, th.Close())
		})
	}
	var next [threads]uint64
	buf := make([]byte, 8)
	for range threads * messages {
		_, err := b.TagRecv(buf, 1, exact).Wait(t.Context())
		require.NoError(t, err)
		v := binary.LittleEndian.Uint64(buf)
		require.Equal(t, next[v>>32], v&0xffff_ffff, "thread %d", v>>32)
		next[v>>32]++
	}
	for range threads * messages / 500 {
		_, err := b.TagRecv(buf, 2, exact).Wait(t.Context())
		require.NoError(t, err)
	}
	all.Wait()
}

// An endpoint of another worker, and one that the worker has closed, are refused.
func TestThreadMisuse(t *testing.T) {
	a, b, ep := newPair(t, "shm", ucp.ThreadSingle)
	th, err := b.NewThread()
	require.NoError(t, err)
	require.ErrorIs(t, ep.On(th).TagSendUint64(1, 1).Err(), ucp.ErrInvalid)
	_, err = ep.On(th).UnpackKey(nil)
	require.Error(t, err)
	own, err := a.NewThread()
	require.NoError(t, err)
	require.NoError(t, ep.Close())
	require.ErrorIs(t, ep.On(own).TagSendUint64(1, 1).Err(), ucp.ErrClosed)
	require.NoError(t, own.Close())
	require.ErrorIs(t, ep.On(own).TagSendUint64(1, 1).Err(), ucp.ErrClosed)
	require.NoError(t, a.Close())
	_, err = a.NewThread()
	require.ErrorIs(t, err, ucp.ErrClosed)
}

// A context that closes progresses its Threads with its workers: what waits for the other side ends.
func TestThreadContextClose(t *testing.T) {
	for _, transport := range senderTransports {
		t.Run(transport, func(t *testing.T) {
			x, err := ucp.Open(ucp.Config{Providers: provider(transport)})
			require.NoError(t, err)
			a, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
			require.NoError(t, err)
			b, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
			require.NoError(t, err)
			ep, err := a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
			require.NoError(t, err)
			th, err := a.NewThread()
			require.NoError(t, err)
			s := ep.On(th).TagSend(make([]byte, 1<<20), 1)
			for ok := false; !ok; {
				th.Progress()
				b.Progress()
				_, ok = b.TagProbe(1, exact)
			}
			_ = x.Close() // a flush reports the rejected send
			require.ErrorIs(t, s.Err(), ucp.ErrRejected)
		})
	}
}

// A wait for a Thread's request polls as long as one for its worker's.
func TestThreadSpin(t *testing.T) {
	x, err := ucp.Open(ucp.Config{Providers: provider("shm")})
	require.NoError(t, err)
	defer func() { require.NoError(t, x.Close()) }()
	for _, spin := range []time.Duration{-1, time.Second} {
		w, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle, Spin: spin})
		require.NoError(t, err)
		ep, err := w.NewEndpoint(w.Address(), ucp.EndpointConfig{})
		require.NoError(t, err)
		th, err := w.NewThread()
		require.NoError(t, err)
		ep.On(th)
		require.EqualValues(t, spin, ucp.ThreadSpin(th))
	}
}
