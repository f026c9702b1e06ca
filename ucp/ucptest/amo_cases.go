package ucptest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var amoCases = []Case{
	{"47 add, and, or, xor, posted and fetched", amoOps},
	{"48 swap and compare-and-swap", amoSwap},
	{"49 concurrent adds: exact sum, each value once", amoConcurrent},
	{"50 unaligned and out of range", amoUnaligned},
	{"51 rights and kinds of memory", amoSupport},
	{"52 fence orders add and fetch", amoFence},
	{"atomics of all kinds take effect in the order of posting", amoOrder},
	{"random atomics against plain arithmetic", amoRandom},
}

// atomicAt is ucp.AtomicAt where it must work.
func atomicAt[T ucp.Word](t *testing.T, k *ucp.RemoteKey, off uint64) ucp.Atomic[T] {
	t.Helper()
	a, err := ucp.AtomicAt[T](k, off)
	require.NoError(t, err)
	return a
}

// local is a word of B's memory as B sees it.
func local[T ucp.Word](m *ucp.MemHandle, off int, width int) T {
	if width == 4 {
		return T(binary.LittleEndian.Uint32(m.Bytes()[off:]))
	}
	return T(m.Load64(off))
}

func amoOps(t *testing.T, p *Pair) {
	t.Run("uint32", func(t *testing.T) { amoOpsOf[uint32](t, p, 4) })
	t.Run("uint64", func(t *testing.T) { amoOpsOf[uint64](t, p, 8) })
	t.Run("int64", func(t *testing.T) { amoOpsOf[int64](t, p, 8) })
}

func amoOpsOf[T ucp.Word](t *testing.T, p *Pair, width int) {
	m, k := p.lend(64)
	a := atomicAt[T](t, k, 16)
	v := T(0)
	for i, o := range []struct {
		name  string
		post  func(T) ucp.Request
		fetch func(T) ucp.Fetch[T]
		model func(a, b T) T
	}{
		{"add", a.Add, a.FetchAdd, func(a, b T) T { return a + b }},
		{"or", a.Or, a.FetchOr, func(a, b T) T { return a | b }},
		{"xor", a.Xor, a.FetchXor, func(a, b T) T { return a ^ b }},
		{"and", a.And, a.FetchAnd, func(a, b T) T { return a & b }},
		{"add", a.Add, a.FetchAdd, func(a, b T) T { return a + b }},
	} {
		for j := range 40 {
			x := ^T(0) / 255 * T(i*40+j+1) // carries beyond the width too
			if j%2 == 0 {
				require.NoError(t, p.Wait(o.post(x)), o.name)
			} else {
				old, err := value(p, o.fetch(x))
				require.NoError(t, err, o.name)
				require.Equal(t, v, old, "fetch %s gives the value before", o.name)
			}
			v = o.model(v, x)
			now, err := value(p, a.Load())
			require.NoError(t, err)
			require.Equal(t, v, now, o.name)
		}
	}
	require.NoError(t, p.Wait(p.AB.Flush()))
	require.Equal(t, v, local[T](m, 16, width))
	require.True(t, zero(m.Bytes()[:16]) && zero(m.Bytes()[16+width:]), "nothing beside is written")
}

func amoSwap(t *testing.T, p *Pair) {
	t.Run("uint32", func(t *testing.T) { amoSwapOf[uint32](t, p) })
	t.Run("uint64", func(t *testing.T) { amoSwapOf[uint64](t, p) })
	t.Run("int64", func(t *testing.T) { amoSwapOf[int64](t, p) })
}

func amoSwapOf[T ucp.Word](t *testing.T, p *Pair) {
	_, k := p.lend(64)
	a := atomicAt[T](t, k, 24)
	must := func(want T, f ucp.Fetch[T]) {
		t.Helper()
		v, err := value(p, f)
		require.NoError(t, err)
		require.Equal(t, want, v)
	}
	big := ^T(0) - 5
	must(0, a.Swap(big))
	must(big, a.Swap(7))
	must(7, a.CompareAndSwap(7, 8)) // success
	must(8, a.CompareAndSwap(7, 9)) // failure: unchanged
	must(8, a.Load())
	must(8, a.CompareAndSwap(8, 8))
	must(8, a.Swap(0))
	must(0, a.CompareAndSwap(0, big))
	must(big, a.Load())
}

func amoConcurrent(t *testing.T, p *Pair) {
	adds := scaled(1000)
	m, k := p.lend(64)
	keys, eps := []*ucp.RemoteKey{k}, []ucp.Endpoint{p.AB}
	for range 3 {
		switch {
		case !p.Alone():
			e := p.Connect(p.NewWorker(), p.B)
			k, err := e.UnpackKey(m.Key())
			require.NoError(t, err)
			keys, eps = append(keys, k), append(eps, e)
		case p.mode == ucp.ThreadMulti:
			keys, eps = append(keys, k), append(eps, p.AB) // more goroutines on the one worker
		}
	}
	seen := make([][]uint64, len(keys))
	var all sync.WaitGroup
	for n, k := range keys {
		word, sum := atomicAt[uint64](t, k, 8), atomicAt[uint32](t, k, 0)
		all.Go(func() {
			for range adds {
				v, err := word.FetchAdd(1).Wait(p.deadline)
				if !assert.NoError(t, err) {
					return
				}
				seen[n] = append(seen[n], v)
				assert.NoError(t, sum.Add(3).Wait(p.deadline))
			}
			assert.NoError(t, eps[n].Flush().Wait(p.deadline))
		})
	}
	p.driveUntil(&all)
	total := adds * len(keys)
	assert.Equal(t, uint64(total), m.Load64(8))
	assert.Equal(t, uint32(3*total), binary.LittleEndian.Uint32(m.Bytes()))
	for _, s := range seen {
		require.True(t, slices.IsSorted(s), "a later add of one worker sees a greater value")
	}
	values := slices.Sorted(slices.Values(slices.Concat(seen...)))
	require.Len(t, values, total)
	for i, v := range values {
		require.Equal(t, uint64(i), v, "each value is seen once")
	}
}

func amoUnaligned(t *testing.T, p *Pair) {
	_, k := p.lend(64)
	for off := range uint64(80) {
		_, err := ucp.AtomicAt[uint64](k, off)
		require.Equal(t, off%8 == 0 && off <= 56, err == nil, "64 bits at %d: %v", off, err)
		_, err32 := ucp.AtomicAt[uint32](k, off)
		require.Equal(t, off%4 == 0 && off <= 60, err32 == nil, "32 bits at %d: %v", off, err32)
		if err != nil {
			require.ErrorIs(t, err, ucp.ErrInvalid)
			require.ErrorContains(t, err, fmt.Sprintf("offset %d", off))
		}
	}
	for _, off := range []uint64{1 << 40, 1 << 63, ^uint64(0), ^uint64(7)} {
		_, err := ucp.AtomicAt[int64](k, off)
		require.ErrorIs(t, err, ucp.ErrInvalid)
	}
	tiny, err := p.Context.Allocate(3, ucp.MemConfig{})
	require.NoError(t, err)
	_, err = ucp.AtomicAt[uint32](p.unpack(tiny), 0)
	require.ErrorIs(t, err, ucp.ErrInvalid)
}

func amoSupport(t *testing.T, p *Pair) {
	m, err := p.Context.Allocate(64, ucp.MemConfig{Access: ucp.AccessRemotePut | ucp.AccessRemoteGet})
	require.NoError(t, err)
	_, err = ucp.AtomicAt[uint64](p.unpack(m), 0)
	require.ErrorIs(t, err, ucp.ErrRemoteAccess)
	for name, m := range p.memories(128) {
		a, err := ucp.AtomicAt[uint64](p.unpack(m), 64)
		if err != nil { // a transport may not carry them to all memory, but says so
			require.ErrorIs(t, err, ucp.ErrUnsupported, name)
			continue
		}
		require.NoError(t, p.Wait(a.Add(41)), name)
		v, err := value(p, a.FetchAdd(1))
		require.NoError(t, err, name)
		require.Equal(t, uint64(41), v)
		require.NoError(t, p.Wait(p.AB.Flush()))
		require.Equal(t, uint64(42), m.Load64(64), "%s: the owner's loads see it", name)
	}
}

func amoFence(t *testing.T, p *Pair) {
	_, k := p.lend(64)
	a := atomicAt[uint64](t, k, 0)
	for i := range uint64(500) {
		a.Add(1)
		p.AB.Fence()
		v, err := value(p, a.FetchAdd(0))
		require.NoError(t, err)
		require.Equal(t, i+1, v)
	}
}

// amoOrder posts, at once behind a fetching atomic that the owner's worker may carry
// out, one that a device may.
func amoOrder(t *testing.T, p *Pair) {
	m, k := p.lend(64)
	a := atomicAt[uint64](t, k, 8)
	v := uint64(0)
	for i := range uint64(scaled(400)) {
		x := i*0x9e3779b97f4a7c15 | 1
		var first, second ucp.Fetch[uint64]
		was := v
		switch i % 4 {
		case 0:
			first, v = a.FetchXor(x), v^x
		case 1:
			first, v = a.FetchAnd(x), v&x
		case 2:
			first, v = a.FetchOr(x), v|x
		case 3:
			first, v = a.Swap(x), x
		}
		then := v
		switch i / 4 % 3 {
		case 0:
			a.Add(3)
			second, v = a.Load(), v+3
			then = v
		case 1:
			second, v = a.FetchAdd(5), v+5
		case 2:
			second, v = a.CompareAndSwap(v, x+1), x+1
		}
		got, err := p.value(first)
		require.NoError(t, err)
		require.Equal(t, was, got, "round %d", i)
		got, err = p.value(second)
		require.NoError(t, err)
		require.Equal(t, then, got, "round %d", i)
	}
	require.NoError(t, p.Wait(p.AB.Flush()))
	require.Equal(t, v, m.Load64(8))
}

func amoRandom(t *testing.T, p *Pair) {
	const words = 16
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	m, k := p.lend(8 * words)
	var model [words]uint64
	for range scaled(2000) {
		i := rng.IntN(words)
		a, v := atomicAt[uint64](t, k, uint64(8*i)), rng.Uint64()
		old := model[i]
		var f ucp.Fetch[uint64]
		switch rng.IntN(8) {
		case 0:
			f, model[i] = a.FetchAdd(v), old+v
		case 1:
			f, model[i] = a.FetchAnd(v), old&v
		case 2:
			f, model[i] = a.FetchOr(v), old|v
		case 3:
			f, model[i] = a.FetchXor(v), old^v
		case 4:
			f, model[i] = a.Swap(v), v
		case 5:
			if rng.IntN(2) == 0 {
				f = a.CompareAndSwap(old^1, v)
			} else {
				f, model[i] = a.CompareAndSwap(old, v), v
			}
		case 6:
			require.NoError(t, p.Wait(a.Add(v)))
			f, model[i] = a.Load(), old+v
			old = model[i]
		case 7:
			require.NoError(t, p.Wait(k.PutUint64(v, uint64(8*i))))
			p.AB.Fence()
			f, model[i], old = k.GetUint64(uint64(8*i)), v, v
		}
		got, err := p.value(f)
		require.NoError(t, err)
		require.Equal(t, old, got)
	}
	require.NoError(t, p.Wait(p.AB.Flush()))
	for i, v := range model {
		require.Equal(t, v, m.Load64(8*i))
	}
}
