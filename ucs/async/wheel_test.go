package async

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

const tick = ucs.Time(1 << tickShift)

func TestWheelFiresOnceNeverEarly(t *testing.T) {
	for name, when := range map[string]ucs.Time{
		"now": 1000 * tick, "past": 5, "next tick": 1001 * tick, "between ticks": 1001*tick + 1,
		"one turn": 1064 * tick, "two levels": 1000*tick + 5000*tick, "hours": ucs.Time(5 * time.Hour),
		"years": ucs.Time(200 * 365 * 24 * time.Hour), "negative": -4,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWheel(1000 * tick)
			ran := 0
			w.set(when, func(ucs.Time) { ran++ })
			for steps := 0; ran == 0; steps++ {
				require.Less(t, steps, 2*levels, "too many wake-ups")
				now := w.next()
				fn := w.pop(now)
				if fn == nil {
					continue
				}
				fn(now)
				assert.GreaterOrEqual(t, now, when)
				assert.LessOrEqual(t, now, max(when, 1000*tick)+tick)
			}
			assert.Equal(t, never, w.next())
			assert.Nil(t, w.pop(never))
		})
	}
}

func TestWheelNever(t *testing.T) {
	w := newWheel(0)
	assert.Equal(t, never, w.next())
	timer := w.set(never, func(ucs.Time) {})
	assert.Equal(t, never, w.next())
	assert.Nil(t, w.pop(never-1))
	assert.True(t, w.cancel(timer))
}

func TestWheelCancel(t *testing.T) {
	w := newWheel(0)
	nop := func(ucs.Time) {}
	first := w.set(10*tick, nop)
	assert.True(t, w.cancel(first))
	assert.False(t, w.cancel(first), "twice")
	assert.Equal(t, never, w.next())
	second := w.set(10*tick, nop)
	assert.False(t, w.cancel(first), "an old name must not reach the slot's heir")
	assert.NotNil(t, w.pop(10*tick))
	assert.False(t, w.cancel(second), "after it ran")
	assert.False(t, w.cancel(0))
	assert.False(t, w.cancel(1<<32|77))
	assert.Len(t, w.nodes, 2, "the slot is used again")
}

func TestWheelTimerThatSetsItselfEndsThePass(t *testing.T) {
	w := newWheel(0)
	ran := 0
	var again func(ucs.Time)
	again = func(now ucs.Time) { ran++; w.set(now, again) }
	w.set(5*tick, again)
	for fn := w.pop(5 * tick); fn != nil; fn = w.pop(5 * tick) {
		fn(5 * tick)
		require.Less(t, ran, 10)
	}
	assert.Equal(t, 1, ran)
}

// TestWheelAgainstHeap compares with the obvious implementation.
func TestWheelAgainstHeap(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		start := ucs.Time(rnd.Int64N(1 << 45))
		w, h, now := newWheel(start), &oracle{}, start
		var ran []int
		for id := range 2000 {
			switch rnd.IntN(4) {
			case 0, 1:
				when := now + ucs.Time(rnd.Int64N(1<<(10+rnd.IntN(30))))
				timer := w.set(when, func(ucs.Time) { ran = append(ran, id) })
				rounded := max((when+tick-1)/tick, now/tick+1)
				heap.Push(h, entry{int64(rounded), id, timer})
			case 2:
				if h.Len() > 0 {
					i := rnd.IntN(h.Len())
					require.True(t, w.cancel((*h)[i].timer), "seed %d", seed)
					heap.Remove(h, i)
				}
			case 3:
				now += ucs.Time(rnd.Int64N(1 << (10 + rnd.IntN(28))))
				ran = ran[:0]
				for fn := w.pop(now); fn != nil; fn = w.pop(now) {
					fn(now)
				}
				var want []int
				last := int64(0)
				for h.Len() > 0 && (*h)[0].tick <= int64(now/tick) {
					e := heap.Pop(h).(entry)
					require.GreaterOrEqual(t, e.tick, last)
					last = e.tick
					want = append(want, e.id)
				}
				require.ElementsMatch(t, want, ran, "seed %d", seed)
				if h.Len() > 0 {
					require.LessOrEqual(t, int64(w.next()/tick), (*h)[0].tick, "seed %d", seed)
					require.Greater(t, w.next(), now, "seed %d", seed)
				}
			}
		}
	}
}

type entry struct {
	tick  int64
	id    int
	timer Timer
}

type oracle []entry

func (o oracle) Len() int           { return len(o) }
func (o oracle) Less(i, j int) bool { return o[i].tick < o[j].tick }
func (o oracle) Swap(i, j int)      { o[i], o[j] = o[j], o[i] }
func (o *oracle) Push(x any)        { *o = append(*o, x.(entry)) }
func (o *oracle) Pop() any {
	old := *o
	e := old[len(old)-1]
	*o = old[:len(old)-1]
	return e
}

func BenchmarkWheelSetCancel(b *testing.B) {
	w := newWheel(0)
	nop := func(ucs.Time) {}
	for i := range 1000 {
		w.set(ucs.Time(i)*100*tick, nop)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.cancel(w.set(300*tick, nop))
	}
}
