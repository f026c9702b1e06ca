package self

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

// interval is the payload of a message that the model holds.
type interval struct{ from, to int }

// TestQueueAgainstModel takes and gives at random: payloads in use never
// overlap, lie within the memory and come out in order, and an empty queue takes
// whatever fits its memory.
func TestQueueAgainstModel(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		cells, bytes := 1<<(1+random.IntN(5)), payloadAlign*(4+random.IntN(60))
		q := queue{ds: make([]uct.Desc, cells), mem: make([]byte, bytes), end: bytes}
		q.limit = cells
		var held []interval
		for step := range 5000 {
			if random.IntN(2) == 0 {
				held = pushModel(t, &q, held, random.IntN(bytes/2), step)
			} else if len(held) > 0 {
				held = popModel(t, &q, held, 1+random.IntN(len(held)))
			}
			require.Equal(t, len(held), q.n, "seed %d step %d", seed, step)
		}
		for len(held) > 0 {
			held = popModel(t, &q, held, len(held))
		}
		require.True(t, q.hasRoom(bytes), "seed %d: an empty queue has all its memory", seed)
	}
}

func pushModel(t *testing.T, q *queue, held []interval, n, step int) []interval {
	if !q.hasRoom(n) && !q.fits(n) {
		require.NotEmpty(t, held, "an empty queue refuses %d bytes", n)
		return held
	}
	mine := interval{q.at, q.at + n}
	require.LessOrEqual(t, mine.to, len(q.mem))
	for _, h := range held {
		require.True(t, n == 0 || h.from == h.to || mine.to <= h.from || h.to <= mine.from, "%v over %v", mine, h)
	}
	q.push(0, uint64(step), 1, n)
	return append(held, mine)
}

// popModel removes the k oldest, at most to the end of the descriptor ring, as
// Progress does.
func popModel(t *testing.T, q *queue, held []interval, k int) []interval {
	k = min(k, len(q.ds)-q.r)
	ds := q.ds[q.r : q.r+k]
	for i, d := range ds {
		require.Equal(t, held[i], interval{int(d.Off), int(d.Off + d.Len)})
		require.True(t, i == 0 || ds[i-1].Header < d.Header, "order")
	}
	last := ds[k-1]
	q.pop(k, int(last.Off)+align(int(last.Len)), false)
	return held[k:]
}
