package ucptest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var rmaCases = []Case{
	{"36 put and get of all sizes, all kinds of memory", rmaSizes},
	{"37 many at once, then flush", rmaManyFlush},
	{"38 fire and forget, then flush", rmaForget},
	{"40 zero length ends at once", rmaZero},
	{"41 own memory handle changes nothing", rmaOwnMemory},
	{"42 large put, fence, small puts", rmaFence},
	{"bounds", rmaBounds},
	{"scalar and inline forms", rmaForms},
	{"random sequence against plain memory", rmaRandom},
	{"46 many goroutines", rmaGoroutines},
}

// memories are the kinds of memory that B may lend.
func (p *Pair) memories(n int) map[string]*ucp.MemHandle {
	p.T.Helper()
	ms := make(map[string]*ucp.MemHandle)
	for name, mc := range map[string]ucp.MemConfig{"": {}, ", not pinned": {NoPin: true}, ", huge": {Huge: true}} {
		a, err := p.Context.Allocate(n, mc)
		require.NoError(p.T, err)
		r, err := p.Context.Register(make([]byte, n), mc)
		require.NoError(p.T, err)
		ms["allocated"+name], ms["registered"+name] = a, r
	}
	return ms
}

// lend allocates n bytes at B and gives A's key to them.
func (p *Pair) lend(n int) (*ucp.MemHandle, *ucp.RemoteKey) {
	p.T.Helper()
	m, err := p.Context.Allocate(n, ucp.MemConfig{})
	require.NoError(p.T, err)
	return m, p.unpack(m)
}

func (p *Pair) unpack(m *ucp.MemHandle) *ucp.RemoteKey {
	p.T.Helper()
	k, err := p.AB.UnpackKey(m.Key())
	require.NoError(p.T, err)
	return k
}

func rmaSizes(t *testing.T, p *Pair) {
	const n = 1<<20 + 100
	for name, m := range p.memories(n) {
		k := p.unpack(m)
		for _, size := range []int{1, 2, 7, 8, 9, 63, 64, 65, 255, 1024, 3392, 4096, 4097, 65536, 1<<19 + 1, n} {
			for _, off := range []int{0, 1, 5, n - size} {
				if off+size > n || size > 1<<16 && off == 5 {
					continue
				}
				clear(m.Bytes())
				want := pattern(size, byte(size+off))
				require.NoError(t, p.Wait(k.Put(want, uint64(off))), "%s: %d bytes at %d", name, size, off)
				require.NoError(t, p.Wait(p.AB.Flush()))
				require.Equal(t, want, m.Bytes()[off:off+size], "%s: %d bytes at %d", name, size, off)
				require.True(t, zero(m.Bytes()[:off]) && zero(m.Bytes()[off+size:]), "%s: nothing beside is written", name)
				got := make([]byte, size+2)
				require.NoError(t, p.Wait(k.Get(got[1:size+1], uint64(off))))
				require.Equal(t, want, got[1:size+1], "%s: %d bytes at %d", name, size, off)
				require.Zero(t, got[0]|got[size+1])
			}
		}
		require.NoError(t, k.Close())
		require.NoError(t, m.Close())
	}
}

func zero(b []byte) bool { return bytes.Count(b, []byte{0}) == len(b) }

func rmaManyFlush(t *testing.T, p *Pair) {
	const n, size = 2000, 100
	m, k := p.lend(n * size)
	for round, flush := range []func() ucp.Request{p.AB.Flush, func() ucp.Request { return p.flushOf(p.A) }} {
		bufs, rs := make([][]byte, n), make([]ucp.Request, n)
		for i := range n {
			bufs[i] = pattern(size, byte(i+round))
			rs[i] = k.Put(bufs[i], uint64(i*size))
		}
		require.NoError(t, p.Wait(flush()))
		for i := range n {
			require.True(t, rs[i].Done(), "flushed operations have ended")
			require.Equal(t, bufs[i], m.Bytes()[i*size:][:size])
			got := make([]byte, size)
			bufs[i], rs[i] = got, k.Get(got, uint64(i*size))
		}
		require.NoError(t, p.Wait(flush()))
		for i := range n {
			require.NoError(t, rs[i].Err())
			require.Equal(t, pattern(size, byte(i+round)), bufs[i])
		}
	}
}

func rmaForget(t *testing.T, p *Pair) {
	const n = 5000
	m, k := p.lend(8 * n)
	for i := range uint64(n) {
		k.PutUint64(i*i+1, 8*i)
	}
	require.NoError(t, p.Wait(p.flushOf(p.A)))
	for i := range n {
		require.Equal(t, uint64(i*i+1), m.Load64(8*i))
	}
}

func rmaZero(t *testing.T, p *Pair) {
	m, k := p.lend(64)
	empty, err := p.Context.Register(nil, ucp.MemConfig{})
	require.NoError(t, err)
	for _, r := range []ucp.Request{
		k.Put(nil, 0), k.Put([]byte{}, 64), k.Get(nil, 5), k.PutInline(nil, 1),
		p.unpack(empty).Put(nil, 0), p.unpack(empty).Get(nil, 0),
	} {
		require.True(t, r.Done())
		require.NoError(t, r.Err())
	}
	require.ErrorIs(t, p.Wait(p.unpack(empty).Put([]byte{1}, 0)), ucp.ErrInvalid)
	assert.True(t, zero(m.Bytes()))
}

func rmaOwnMemory(t *testing.T, p *Pair) {
	own, err := p.Context.Allocate(64<<10, ucp.MemConfig{})
	require.NoError(t, err)
	m, k := p.lend(64 << 10)
	for _, size := range []int{8, 100, 10_000, 64 << 10} {
		for _, o := range []ucp.Opts{{}, {Mem: own}} {
			clear(m.Bytes())
			copy(own.Bytes(), pattern(size, 9))
			require.NoError(t, p.Wait(k.PutWith(own.Bytes()[:size], 0, o)))
			require.NoError(t, p.Wait(p.AB.Flush()))
			require.Equal(t, pattern(size, 9), m.Bytes()[:size])
			clear(own.Bytes())
			require.NoError(t, p.Wait(k.GetWith(own.Bytes()[:size], 0, o)))
			require.Equal(t, pattern(size, 9), own.Bytes()[:size])
		}
	}
	require.ErrorIs(t, p.Wait(k.PutWith(make([]byte, 8), 0, ucp.Opts{Mem: own})), ucp.ErrInvalid)
}

func rmaFence(t *testing.T, p *Pair) {
	const size = 1 << 20
	m, k := p.lend(size)
	for round := range byte(20) {
		large := pattern(size, round)
		k.Put(large, 0)
		p.AB.Fence()
		k.PutInline([]byte{round + 100}, 0)
		k.PutInline([]byte{round + 101}, size-1)
		require.NoError(t, p.Wait(p.AB.Flush()))
		large[0], large[size-1] = round+100, round+101
		require.Equal(t, large, m.Bytes())
	}
}

func rmaBounds(t *testing.T, p *Pair) {
	m, k := p.lend(100)
	assert.Equal(t, uint64(100), k.Len())
	last := ^uint64(0)
	for _, off := range []uint64{93, 99, 100, 101, 1 << 32, 1 << 63, last, last - 6, last - 7} {
		for _, r := range []ucp.Request{
			k.Put(make([]byte, 8), off), k.Get(make([]byte, 8), off),
			k.PutInline(make([]byte, 8), off), k.PutUint64(1, off),
		} {
			err := p.Wait(r)
			require.ErrorIs(t, err, ucp.ErrInvalid)
			require.ErrorContains(t, err, "8 bytes at offset")
		}
		_, err := p.value(k.GetUint64(off))
		require.ErrorIs(t, err, ucp.ErrInvalid)
	}
	require.True(t, zero(m.Bytes()))
	require.NoError(t, p.Wait(k.Put(pattern(8, 1), 92)))
}

// value waits for a fetched value.
func (p *Pair) value(f ucp.Fetch[uint64]) (uint64, error) { return value(p, f) }

func value[T ucp.Word](p *Pair, f ucp.Fetch[T]) (T, error) {
	p.T.Helper()
	p.Until(f.Done)
	return f.Wait(p.deadline)
}

func rmaForms(t *testing.T, p *Pair) {
	m, k := p.lend(256)
	for off := range uint64(20) {
		v := 0x0102030405060708 * (off + 1)
		require.NoError(t, p.Wait(k.PutUint64(v, off)))
		require.NoError(t, p.Wait(p.AB.Flush()))
		require.Equal(t, v, m.Load64(int(off)))
		got, err := p.value(k.GetUint64(off))
		require.NoError(t, err)
		require.Equal(t, v, got)
	}
	for n := range p.inlinePut(k) + 1 {
		var b [200]byte
		copy(b[:], pattern(n, byte(n)))
		r := k.PutInline(b[:n], 3)
		clear(b[:]) // it may be reused
		require.NoError(t, p.Wait(r))
		require.NoError(t, p.Wait(p.AB.Flush()))
		require.Equal(t, pattern(n, byte(n)), m.Bytes()[3:3+n])
	}
}

// inlinePut is the longest put that PutInline takes, at most 200.
func (p *Pair) inlinePut(k *ucp.RemoteKey) int {
	p.T.Helper()
	n := 200
	for err := ucp.ErrTooLong; errors.Is(err, ucp.ErrTooLong); n-- {
		err = p.Wait(k.PutInline(make([]byte, n), 0))
	}
	_ = p.Wait(p.flushOf(p.A)) // which tells of those that were refused
	return n + 1
}

// rmaRandom does a random sequence of operations, each waited for or dropped,
// and the same on plain memory; gets, and in the end everything, must agree.
func rmaRandom(t *testing.T, p *Pair) {
	const size = 100_000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	m, k := p.lend(size)
	model := make([]byte, size)
	inline := p.inlinePut(k)
	lengths := []int{0, 1, 8, 8, 8, 30, 64, 1000, 5000, 50_000}
	for range scaled(3000) {
		n := rng.IntN(lengths[rng.IntN(len(lengths))] + 1)
		off := rng.IntN(size - n + 1)
		b := pattern(n, byte(rng.Uint32()))
		switch rng.IntN(6) {
		case 0, 1:
			copy(model[off:], b)
			r := k.Put(b, uint64(off))
			if rng.IntN(2) == 0 {
				require.NoError(t, p.Wait(r))
			}
		case 2:
			b = b[:min(n, inline)]
			copy(model[off:], b)
			k.PutInline(b, uint64(off))
		case 3:
			require.NoError(t, p.Wait(p.flushOf(p.A)))
			got := make([]byte, n)
			require.NoError(t, p.Wait(k.Get(got, uint64(off))))
			require.Equal(t, model[off:off+n], got)
		case 4:
			p.AB.Fence()
		case 5:
			p.Progress()
		}
		// Puts are ordered among themselves only by fences.
		p.AB.Fence()
	}
	require.NoError(t, p.Wait(p.AB.Flush()))
	require.Equal(t, model, m.Bytes())
}

// rmaGoroutines: with ThreadMulti any goroutine may use the worker.
func rmaGoroutines(t *testing.T, p *Pair) {
	if p.mode != ucp.ThreadMulti {
		return // one goroutine is the rule there
	}
	const routines, rounds, size = 8, 100, 1000
	m, k := p.lend(routines * size)
	var all sync.WaitGroup
	for g := range routines {
		all.Go(func() {
			off := uint64(g * size)
			for i := range rounds {
				want, got := pattern(size, byte(g+i)), make([]byte, size)
				assert.NoError(t, k.Put(want, off).Wait(p.deadline))
				p.AB.Fence()
				assert.NoError(t, k.Get(got, off).Wait(p.deadline))
				assert.Equal(t, want, got)
			}
		})
	}
	all.Wait()
	for g := range routines {
		require.Equal(t, pattern(size, byte(g+rounds-1)), m.Bytes()[g*size:][:size])
	}
}
