package ucp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// fakeKey is a worker with a key to its own memory over a fake transport.
type fakeKey struct {
	f   *fake
	c   *ucp.Context
	w   *ucp.Worker
	e   ucp.Endpoint
	mem []byte
	m   *ucp.MemHandle
	k   *ucp.RemoteKey
}

func openFake(t *testing.T, f *fake, mode ucp.ThreadMode) *fakeKey {
	t.Helper()
	s := &fakeKey{f: f, mem: make([]byte, 1000)}
	var err error
	s.c, err = ucp.Open(ucp.Config{Providers: []uct.Component{f}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.c.Close()) })
	s.w, err = s.c.NewWorker(ucp.WorkerConfig{Mode: mode})
	require.NoError(t, err)
	s.m, err = s.c.Register(s.mem, ucp.MemConfig{})
	require.NoError(t, err)
	s.e, err = s.w.NewEndpoint(s.w.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	s.k, err = s.e.UnpackKey(s.m.Key())
	require.NoError(t, err)
	return s
}

func bothModes(t *testing.T, f func(t *testing.T, mode ucp.ThreadMode)) {
	t.Run("single", func(t *testing.T) { f(t, ucp.ThreadSingle) })
	t.Run("multi", func(t *testing.T) { f(t, ucp.ThreadMulti) })
}

func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7 + 1)
	}
	return p
}

func TestTransferInPieces(t *testing.T) {
	for _, c := range []struct {
		name  string
		n     int
		setup func(f *fake)
		put   []string
	}{
		{"one word", 8, nil, []string{"put uint64"}},
		{"one short", 7, nil, []string{"put short 7"}},
		{"one bcopy", 9, nil, []string{"put bcopy 9"}},
		{"full bcopy", 100, nil, []string{"put bcopy 100"}},
		{"pieces, the last short", 208, nil, []string{"put bcopy 100", "put bcopy 100", "put short 8"}},
		{"pieces, the last bcopy", 209, nil, []string{"put bcopy 100", "put bcopy 100", "put bcopy 9"}},
		{"short alone", 20, func(f *fake) { f.ops &^= uct.OpPutBcopy | uct.OpGetBcopy }, []string{"put short 8", "put short 8", "put short 4"}},
		{"bcopy alone", 4, func(f *fake) { f.ops &^= uct.OpPutShort | uct.OpGetShort }, []string{"put bcopy 4"}},
	} {
		for _, async := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
					f := newFake()
					f.async = async
					if c.setup != nil {
						c.setup(f)
					}
					s := openFake(t, f, mode)
					p := pattern(c.n)
					require.NoError(t, s.k.Put(p, 11).Wait(context.Background()))
					want := make([]byte, 1000)
					copy(want[11:], p)
					assert.Equal(t, want, s.mem)
					if c.n != 8 || mode == ucp.ThreadSingle { // a word may go in either form
						assert.Equal(t, c.put, f.calls)
					}
					q := make([]byte, c.n)
					require.NoError(t, s.k.Get(q, 11).Wait(context.Background()))
					assert.Equal(t, p, q)
				})
			})
		}
	}
}

// A transfer that runs out of resources half-way goes on where it stopped, also
// when what it posted ends before.
func TestTransferResumes(t *testing.T) {
	bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
		for credits := range 5 {
			f := newFake()
			f.async = true
			s := openFake(t, f, mode)
			f.credits = credits
			p := pattern(450)
			r := s.k.Put(p, 0)
			for f.credits == 0 && s.w.Progress() > 0 {
				assert.False(t, r.Done())
			}
			assert.False(t, r.Done())
			f.credits = 1 // one piece at a time
			for !r.Done() {
				s.w.Progress()
				if f.credits == 0 {
					f.credits = 1
				}
			}
			require.NoError(t, r.Err())
			assert.Equal(t, p, s.mem[:450])
			assert.Len(t, f.calls, 5)
		}
	})
}

func TestTransferFailsOnce(t *testing.T) {
	t.Run("at once", func(t *testing.T) {
		s := openFake(t, newFake(), ucp.ThreadMulti)
		s.f.failNext = ucs.RemoteAccess
		r := s.k.Put(pattern(300), 0)
		require.True(t, r.Done())
		require.ErrorIs(t, r.Wait(context.Background()), ucp.ErrRemoteAccess)
	})
	t.Run("half-way", func(t *testing.T) {
		s := openFake(t, newFake(), ucp.ThreadMulti)
		s.f.async, s.f.credits = true, 2
		r := s.k.Put(pattern(300), 0)
		require.False(t, r.Done())
		s.f.failNext, s.f.credits = ucs.RemoteAccess, -1
		require.ErrorIs(t, r.Wait(context.Background()), ucp.ErrRemoteAccess)
		assert.Len(t, s.f.calls, 2)
	})
	t.Run("by event", func(t *testing.T) {
		s := openFake(t, newFake(), ucp.ThreadMulti)
		s.f.async, s.f.eventState = true, ucs.RemoteAccess
		r := s.k.Get(make([]byte, 300), 0)
		var op *ucp.OpError
		require.ErrorAs(t, r.Wait(context.Background()), &op)
		assert.Equal(t, "get", op.Op)
		assert.Equal(t, "fake/fake0", op.Lane)
		require.ErrorIs(t, op, ucp.ErrRemoteAccess)
	})
}

func TestScalarsAndAtomicsWait(t *testing.T) {
	ctx := context.Background()
	bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
		for _, c := range []struct {
			name    string
			async   bool
			credits int
		}{{"at once", false, -1}, {"by event", true, -1}, {"pending", false, 0}, {"pending, then by event", true, 0}} {
			t.Run(c.name, func(t *testing.T) {
				s := openFake(t, newFake(), mode)
				a64, err := ucp.AtomicAt[uint64](s.k, at8(s.mem, 0))
				require.NoError(t, err)
				a32, err := ucp.AtomicAt[uint32](s.k, at8(s.mem, 16))
				require.NoError(t, err)
				s.f.async = c.async
				restock := func() { s.f.credits = c.credits }
				restock()
				wait := func(r ucp.Request) {
					s.f.credits = -1
					require.NoError(t, r.Wait(ctx))
					restock()
				}
				wait(s.k.PutUint64(40, at8(s.mem, 0)))
				wait(a64.Add(2))
				wait(a32.Add(5))
				f, g, h := s.k.GetUint64(at8(s.mem, 0)), a64.FetchAdd(1), a32.FetchAdd(1)
				assert.Equal(t, !c.async && c.credits < 0, f.Done() && g.Done() && h.Done())
				s.f.credits = -1
				v, err := f.Wait(ctx)
				require.NoError(t, err)
				assert.Equal(t, uint64(42), v)
				v, err = g.Wait(ctx)
				require.NoError(t, err)
				assert.Equal(t, uint64(42), v)
				w, err := h.Wait(ctx)
				require.NoError(t, err)
				assert.Equal(t, uint32(5), w)
				_, err = g.Wait(ctx)
				if c.async || c.credits == 0 {
					require.ErrorIs(t, err, ucp.ErrStale, "a result that came is consumed once")
				}
			})
		}
	})
}

// at8 is the offset of the n-th byte from the first aligned one.
func at8(mem []byte, n uint64) uint64 { return -addressOf(mem)&7 + n }

func TestFetchDrop(t *testing.T) {
	bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
		s := openFake(t, newFake(), mode)
		s.f.async = true
		for range 10_000 { // slots come back, or this grows without end
			s.k.GetUint64(0).Drop()
			s.w.Progress()
		}
		f := s.k.GetUint64(0)
		s.w.Progress()
		require.True(t, f.Done())
		f.Drop()
		_, err := f.Wait(context.Background())
		require.ErrorIs(t, err, ucp.ErrStale)
	})
}

// With ThreadSingle a value is waited for without the lock.
func TestFetchWaitTakesNoLock(t *testing.T) {
	for _, async := range []bool{false, true} {
		s := openFake(t, newFake(), ucp.ThreadSingle)
		s.f.async = async
		put := s.k.PutUint64(42, 0)
		for !put.Done() {
			s.w.Progress()
		}
		release := s.w.Hold()
		f := s.k.GetUint64(0)
		assert.Equal(t, !async, f.Done())
		v, err := f.Wait(context.Background())
		release()
		require.NoError(t, err)
		assert.Equal(t, uint64(42), v)
	}
}

// An inline put that must wait sends what p held at the call.
func TestPutInlineKeepsACopy(t *testing.T) {
	bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
		for _, n := range []int{1, 5, 8} {
			s := openFake(t, newFake(), mode)
			s.f.credits = 0
			p := pattern(n)
			r := s.k.PutInline(p, 3)
			require.False(t, r.Done())
			clear(p)
			s.f.credits = -1
			require.NoError(t, r.Wait(context.Background()))
			assert.Equal(t, pattern(n), s.mem[3:3+n])
		}
		s := openFake(t, newFake(), mode)
		require.ErrorIs(t, s.k.PutInline(pattern(9), 0).Wait(context.Background()), ucp.ErrTooLong)
	})
}

func TestBoundsAreCheckedHere(t *testing.T) {
	ctx := context.Background()
	max := ^uint64(0)
	bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
		s := openFake(t, newFake(), mode)
		for _, c := range []struct {
			off uint64
			n   int
			ok  bool
		}{
			{0, 1000, true},
			{999, 1, true},
			{1000, 0, true},
			{992, 8, true},
			{0, 1001, false},
			{1000, 1, false},
			{1001, 0, false},
			{993, 8, false},
			{max, 1, false},
			{max, 2, false},
			{max - 6, 8, false},
			{max, 0, false},
			{max - 998, 1000, false},
		} {
			s.f.calls = nil
			p := make([]byte, c.n)
			for name, r := range map[string]ucp.Request{"put": s.k.Put(p, c.off), "get": s.k.Get(p, c.off)} {
				err := r.Wait(ctx)
				if c.ok {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, ucp.ErrInvalid)
				assert.ErrorContains(t, err, name)
				assert.ErrorContains(t, err, "bytes at offset")
				assert.ErrorContains(t, err, "region of 1000")
			}
			if c.n == 0 || !c.ok {
				assert.Empty(t, s.f.calls, "nothing is sent")
			}
			if c.n == 8 {
				_, err := s.k.GetUint64(c.off).Wait(ctx)
				assert.Equal(t, c.ok, err == nil)
				assert.Equal(t, c.ok, s.k.PutUint64(1, c.off).Wait(ctx) == nil)
			}
		}
		assert.EqualError(t, errors.Unwrap(s.k.Put(make([]byte, 3), 998).Wait(ctx)),
			"put of 3 bytes at offset 998 of a region of 1000: invalid parameter")
	})
}

// Refused operations that nobody reads take no memory for ever.
func TestRefusedOperationsAreForgotten(t *testing.T) {
	s := openFake(t, newFake(), ucp.ThreadSingle)
	for range 50_000 {
		s.k.PutUint64(1, 5000)
	}
	first := s.k.PutUint64(1, 5000)
	require.ErrorIs(t, first.Err(), ucp.ErrInvalid)
}

func TestOptsMem(t *testing.T) {
	ctx := context.Background()
	s := openFake(t, newFake(), ucp.ThreadMulti)
	own := pattern(100)
	m, err := s.c.Register(own, ucp.MemConfig{Access: ucp.AccessLocal})
	require.NoError(t, err)
	o := ucp.Opts{Mem: m}
	require.NoError(t, s.k.PutWith(own[10:90], 0, o).Wait(ctx))
	assert.Equal(t, own[10:90], s.mem[:80])
	require.NoError(t, s.k.GetWith(own[:4], 8, o).Wait(ctx))
	require.NoError(t, s.k.PutWith(nil, 0, o).Wait(ctx))
	require.ErrorIs(t, s.k.PutWith(make([]byte, 4), 0, o).Wait(ctx), ucp.ErrInvalid)
	require.ErrorIs(t, s.k.GetWith(make([]byte, 4), 0, o).Wait(ctx), ucp.ErrInvalid)
	require.NoError(t, m.Close())
	require.ErrorIs(t, s.k.PutWith(own, 0, o).Wait(ctx), ucp.ErrInvalid)
}

// Close may follow a post: the transport's key goes after the last operation.
func TestKeyCloseAfterPost(t *testing.T) {
	bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
		for name, setup := range map[string]func(f *fake){
			"on its way": func(f *fake) { f.async = true },
			"pending":    func(f *fake) { f.credits = 0 },
			"half-way":   func(f *fake) { f.async, f.credits = true, 1 },
		} {
			t.Run(name, func(t *testing.T) {
				s := openFake(t, newFake(), mode)
				setup(s.f)
				p := pattern(150)
				r := s.k.Put(p, 0)
				require.False(t, r.Done())
				require.NoError(t, s.k.Close())
				require.NoError(t, s.k.Close())
				assert.Zero(t, s.f.released)
				require.ErrorIs(t, s.k.PutUint64(1, 0).Wait(context.Background()), ucp.ErrClosed)
				s.f.credits = -1
				require.NoError(t, r.Wait(context.Background()))
				for range 10 {
					s.w.Progress()
				}
				assert.Equal(t, 1, s.f.released)
				assert.Equal(t, p, s.mem[:150])
				require.NoError(t, s.e.Close())
				assert.True(t, s.f.iface.ep.closed, "no reference to the lane is left")
			})
		}
		s := openFake(t, newFake(), mode)
		require.NoError(t, s.k.Close())
		assert.Equal(t, 1, s.f.released)
	})
}

func TestKeyClosesWithItsEndpoint(t *testing.T) {
	bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
		for name, end := range map[string]func(ucp.Endpoint){
			"close": func(e ucp.Endpoint) { require.NoError(t, e.Close()) },
			"abort": func(e ucp.Endpoint) { e.Abort(nil) },
		} {
			t.Run(name, func(t *testing.T) {
				s := openFake(t, newFake(), mode)
				a, err := ucp.AtomicAt[uint64](s.k, at8(s.mem, 0))
				require.NoError(t, err)
				end(s.e)
				ctx := context.Background()
				assert.Equal(t, 1, s.f.released)
				assert.True(t, s.f.iface.ep.closed)
				require.ErrorIs(t, s.k.Put(pattern(8), 0).Wait(ctx), ucp.ErrClosed)
				require.ErrorIs(t, s.k.Get(pattern(20), 0).Wait(ctx), ucp.ErrClosed)
				require.ErrorIs(t, a.Add(1).Wait(ctx), ucp.ErrClosed)
				_, err = a.FetchAdd(1).Wait(ctx)
				require.ErrorIs(t, err, ucp.ErrClosed)
				_, err = ucp.AtomicAt[uint64](s.k, 0)
				require.ErrorIs(t, err, ucp.ErrClosed)
				_, err = s.k.Bytes()
				require.ErrorIs(t, err, ucp.ErrClosed)
				require.NoError(t, s.k.Close())
				_, err = s.e.UnpackKey(s.m.Key())
				require.ErrorIs(t, err, ucp.ErrClosed)
				assert.Empty(t, s.f.calls)
			})
		}
	})
}

// An abort ends what waits and what is half-way; the transport may still end
// what it has.
func TestAbortWithTransfersOnTheirWay(t *testing.T) {
	for name, setup := range map[string]func(f *fake){
		"on its way": func(f *fake) { f.async = true },
		"pending":    func(f *fake) { f.credits = 0 },
		"half-way":   func(f *fake) { f.async, f.credits = true, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			s := openFake(t, newFake(), ucp.ThreadSingle)
			// Another endpoint keeps the lane open.
			_, err := s.w.NewEndpoint(s.w.Address(), ucp.EndpointConfig{Eager: true})
			require.NoError(t, err)
			setup(s.f)
			r := s.k.Put(pattern(150), 0)
			g := s.k.GetUint64(0)
			s.e.Abort(errors.New("enough"))
			s.f.credits = -1
			require.ErrorIs(t, r.Wait(context.Background()), ucp.ErrCanceled)
			_, err = g.Wait(context.Background())
			require.ErrorIs(t, err, ucp.ErrCanceled)
			for range 10 {
				s.w.Progress()
			}
			assert.Equal(t, 1, s.f.released)
		})
	}
}

func TestUnpackKeyRefusals(t *testing.T) {
	t.Run("no put", func(t *testing.T) {
		f := newFake()
		s := openFake(t, f, ucp.ThreadMulti)
		f.ops, f.atomics = uct.OpsGet, 0
		_, err := s.e.UnpackKey(ucp.WithoutSoftware(s.m.Key()))
		require.ErrorIs(t, err, ucp.ErrUnreachable)
		assert.ErrorContains(t, err, "fake/fake0: put and get: does not put")
		assert.ErrorContains(t, err, "atomics: does not reach this memory")
	})
	t.Run("no atomics", func(t *testing.T) {
		f := newFake()
		f.atomics = 0
		s := openFake(t, f, ucp.ThreadMulti)
		k, err := s.e.UnpackKey(ucp.WithoutSoftware(s.m.Key()))
		require.NoError(t, err)
		_, err = ucp.AtomicAt[uint64](k, at8(s.mem, 0))
		require.ErrorIs(t, err, ucp.ErrUnsupported)
		assert.ErrorContains(t, err, "does not reach this memory")
	})
	t.Run("closed by its owner", func(t *testing.T) {
		s := openFake(t, newFake(), ucp.ThreadMulti)
		key := s.m.Key()
		require.NoError(t, s.m.Close())
		_, err := s.e.UnpackKey(key)
		require.ErrorIs(t, err, ucp.ErrRemoteAccess)
	})
	t.Run("damaged", func(t *testing.T) {
		s := openFake(t, newFake(), ucp.ThreadMulti)
		key := s.m.Key()
		for i := range key {
			bad := bytes.Clone(key)
			bad[i] ^= 0x10
			_, err := s.e.UnpackKey(bad)
			require.ErrorIs(t, err, ucp.ErrInvalid)
			_, err = s.e.UnpackKey(key[:i])
			require.ErrorIs(t, err, ucp.ErrInvalid)
		}
		_, err := ucp.Endpoint{}.UnpackKey(key)
		require.ErrorIs(t, err, ucp.ErrClosed)
	})
	t.Run("of no domain", func(t *testing.T) {
		s := openFake(t, newFake(), ucp.ThreadMulti)
		_, err := s.e.UnpackKey(ucp.WithoutDomains(s.m.Key()))
		require.ErrorIs(t, err, ucp.ErrUnreachable)
		assert.ErrorContains(t, err, "the owner did not register the memory with it")
	})
}

func TestAccessRights(t *testing.T) {
	ctx := context.Background()
	bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
		for _, c := range []struct {
			access           ucp.Access
			put, get, atomic bool
		}{
			{ucp.AccessRemotePut, true, false, false},
			{ucp.AccessRemoteGet, false, true, false},
			{ucp.AccessRemoteAtomic, false, false, true},
			{ucp.AccessLocal, false, false, false},
			{ucp.AccessRemotePut | ucp.AccessRemoteGet, true, true, false},
			{0, true, true, true},
		} {
			s := openFake(t, newFake(), mode)
			m, err := s.c.Register(make([]byte, 64), ucp.MemConfig{Access: c.access})
			require.NoError(t, err)
			k, err := s.e.UnpackKey(m.Key())
			require.NoError(t, err)
			check := func(want bool, err error) {
				t.Helper()
				if want {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, ucp.ErrRemoteAccess)
				}
			}
			check(c.put, k.Put(pattern(8), 0).Wait(ctx))
			check(c.put, k.Put(pattern(30), 0).Wait(ctx))
			check(c.put, k.PutInline(pattern(3), 0).Wait(ctx))
			check(c.put, k.PutUint64(1, 0).Wait(ctx))
			check(c.get, k.Get(make([]byte, 8), 0).Wait(ctx))
			check(c.get, k.Get(make([]byte, 30), 0).Wait(ctx))
			_, err = k.GetUint64(0).Wait(ctx)
			check(c.get, err)
			_, err = ucp.AtomicAt[uint64](k, at8(m.Bytes(), 0))
			check(c.atomic, err)
		}
	})
}

// An endpoint on which nothing was posted has nothing to flush. Its Close does not wait
// for the failure of a peer that another endpoint uses, and that is not its own.
func TestUnusedEndpointHasNothingToFlush(t *testing.T) {
	bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
		f := newFake()
		s := openFake(t, f, mode)
		require.NoError(t, s.k.PutUint64(1, 0).Wait(t.Context()))
		unused, err := s.w.NewEndpoint(s.w.Address(), ucp.EndpointConfig{})
		require.NoError(t, err)
		f.failNext = ucs.PeerFailed
		began := time.Now()
		require.NoError(t, unused.Flush().Err())
		require.NoError(t, unused.Close())
		require.Less(t, time.Since(began), 5*time.Second, "it waits for CloseTimeout")
		r := s.e.Flush()
		f.iface.h.HandleFailure(uct.Failure{Endpoint: f.iface.ep, Err: ucs.ErrPeerFailed})
		require.ErrorIs(t, r.Err(), ucp.ErrPeerFailed) // of what was posted on it
		f.failNext = ucs.OK
	})
}

// A flush posted after the transport has detected a failure, but before it reports it, completes
// with the reason in the report.
func TestFlushAwaitsReport(t *testing.T) {
	bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
		f := newFake()
		s := openFake(t, f, mode)
		require.NoError(t, s.k.PutUint64(1, 0).Wait(context.Background()))
		f.failNext = ucs.PeerFailed
		flushes := map[string]ucp.Request{"endpoint": s.e.Flush(), "worker": s.w.Flush()}
		for name, r := range flushes {
			require.False(t, r.Done(), name)
		}
		f.iface.h.HandleFailure(uct.Failure{Endpoint: f.iface.ep, Err: fmt.Errorf("%w: a test", ucs.ErrRemoteAccess)})
		f.failNext = ucs.OK
		for name, r := range flushes {
			require.ErrorIs(t, r.Wait(context.Background()), ucp.ErrRemoteAccess, name)
		}
	})
}
