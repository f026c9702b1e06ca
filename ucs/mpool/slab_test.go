package mpool

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type item struct {
	a, b uint64
	_    [4]uint32
}

func slab[T any](t testing.TB, limit int) *Slab[T] {
	t.Helper()
	s, err := New[T](limit)
	require.NoError(t, err)
	return s
}

func take[T any](t testing.TB, s *Slab[T]) uint32 {
	t.Helper()
	i := s.Take()
	require.NotEqual(t, None, i)
	return i
}

func TestTakeReleaseAt(t *testing.T) {
	s := slab[item](t, 0)
	assert.Zero(t, s.Cap())
	i, j := take(t, s), take(t, s)
	assert.NotEqual(t, i, j)
	s.At(i).a, s.At(j).a = 1, 2
	assert.Equal(t, uint64(1), s.At(i).a)
	assert.Equal(t, 2, s.Used())
	s.Release(i)
	assert.Equal(t, i, take(t, s), "the warm one first")
	assert.Equal(t, uint64(1), s.At(i).a, "a slot is not cleared")
	assert.Panics(t, func() { s.Release(i); s.Release(i) })
	assert.Panics(t, func() { s.Release(7) }, "never taken")
	assert.Panics(t, func() { s.Release(1 << 20) }, "not there")
}

func TestSlotsStayWhereTheyAre(t *testing.T) {
	s := slab[item](t, 0)
	i := take(t, s)
	p := s.At(i)
	for range 10 * ChunkSlots {
		take(t, s)
	}
	p.b = 77
	assert.Equal(t, uint64(77), s.At(i).b)
	assert.Same(t, p, s.At(i))
}

func TestLimit(t *testing.T) {
	for _, limit := range []int{1, 5, ChunkSlots, ChunkSlots + 1, 3*ChunkSlots - 1} {
		s := slab[item](t, limit)
		seen := map[uint32]bool{}
		for range limit {
			i := take(t, s)
			assert.False(t, seen[i])
			assert.Less(t, i, uint32(limit))
			seen[i] = true
		}
		for range 3 {
			assert.Equal(t, None, s.Take())
		}
		assert.Equal(t, limit, s.Used())
		assert.Equal(t, limit, s.Cap())
		s.Release(0)
		assert.Equal(t, uint32(0), take(t, s))
	}
}

func TestHandles(t *testing.T) {
	s := slab[item](t, 0)
	_, ok := s.Lookup(0)
	assert.False(t, ok, "empty slab")
	i := take(t, s)
	old := s.Handle(i)
	assert.NotZero(t, old)
	got, ok := s.Lookup(old)
	assert.True(t, ok)
	assert.Equal(t, i, got)
	s.Release(i)
	_, ok = s.Lookup(old)
	assert.False(t, ok, "released")
	_, ok = s.Lookup(s.Handle(i))
	assert.False(t, ok, "a handle of a free slot")
	require.Equal(t, i, take(t, s))
	_, ok = s.Lookup(old)
	assert.False(t, ok, "the heir is not the former")
	for _, h := range []uint64{0, ^uint64(0), 1 << 32, uint64(s.Gen(i))<<32 | 5000, uint64(s.Gen(i)) << 32} {
		_, ok = s.Lookup(h)
		assert.False(t, ok, "%#x", h)
	}
}

func TestPointersAreRefused(t *testing.T) {
	for _, err := range []error{
		second(New[*int](0)), second(New[string](0)), second(New[[]byte](0)), second(New[any](0)),
		second(New[struct {
			a int
			f [2]func()
		}](0)), second(New[map[int]int](0)), second(New[chan int](0)),
	} {
		assert.ErrorIs(t, err, ErrPointers)
	}
	for _, err := range []error{
		second(New[struct{}](0)), second(New[[0]*int](0)), second(New[[3]struct{ f float64 }](0)), second(New[uintptr](0)),
	} {
		assert.NoError(t, err)
	}
}

func second[T any](_ *Slab[T], err error) error { return err }

// TestAgainstMap compares with the obvious implementation.
func TestAgainstMap(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		s := slab[uint64](t, 2000)
		live := map[uint32]uint64{}
		var order []uint32
		for n := range uint64(20_000) {
			if rnd.IntN(100) < 52 {
				i := s.Take()
				ok := i != None
				if _, taken := live[i]; ok == (len(live) == 2000) || ok && taken {
					require.Fail(t, "took a slot that was not free", "seed %d, slot %d", seed, i)
				}
				if ok {
					*s.At(i) = n
					live[i] = n
					order = append(order, i)
				}
			} else if len(order) > 0 {
				k := rnd.IntN(len(order))
				i := order[k]
				if live[i] != *s.At(i) {
					require.Fail(t, "somebody wrote to it", "seed %d, slot %d", seed, i)
				}
				s.Release(i)
				delete(live, i)
				order[k] = order[len(order)-1]
				order = order[:len(order)-1]
			}
		}
		require.Equal(t, len(live), s.Used(), "seed %d", seed)
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	s := slab[item](t, 0)
	for range ChunkSlots {
		take(t, s)
	}
	for i := range uint32(ChunkSlots) {
		s.Release(i)
	}
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		i, j := s.Take(), s.Take()
		s.At(i).a++
		s.Release(i)
		s.Release(j)
	}))
}

func BenchmarkTakeRelease(b *testing.B) {
	s := slab[item](b, 0)
	b.ReportAllocs()
	for b.Loop() {
		i := s.Take()
		s.At(i).a++
		s.Release(i)
	}
}
