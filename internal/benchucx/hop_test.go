package main

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
)

func TestHop(t *testing.T) {
	cores, err := cpu.Affinity()
	if len(cores) < 2 {
		t.Skip("needs two cores")
	}
	require.NoError(t, err)
	before := runtime.NumGoroutine()
	hop, err := measureHop(cores[0], cores[1])
	require.NoError(t, err)
	assert.Greater(t, hop, 1.0)
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() { // one may still be about to end
		require.True(t, time.Now().Before(end), "a goroutine has not returned")
	}
	for _, wrong := range [][2]int{{cores[0], -1}, {-1, cores[1]}} {
		_, err = measureHop(wrong[0], wrong[1])
		require.ErrorIs(t, err, ucs.ErrInvalid)
	}
}

func TestPairsWithTheSameDistance(t *testing.T) {
	closeBy, apart := sample{1, 50, 60}, sample{2, 140, 150}
	both := pair{sample{1, 50, 150}, closeBy}
	for want, p := range map[distance]pair{
		near: {closeBy, closeBy}, far: {apart, apart}, mixed: both, unknown: {sample{figure: 1}, sample{figure: 1}},
	} {
		assert.Equal(t, want, p.distance())
	}
	assert.Equal(t, mixed, pair{closeBy, apart}.distance())
	pairs := []pair{both, {closeBy, closeBy}, {apart, apart}}
	assert.Equal(t, pairs, comparable(pairs), "too few")
	for range leastComparable - 2 {
		pairs = append(pairs, pair{apart, apart})
	}
	assert.Equal(t, pairs[1:], comparable(pairs))
	assert.Equal(t, "1 near, 5 far, 1 mixed", distances(pairs))
}

// Rounds are added while the cores move, up to as many again.
func TestRoundsGoOnUntilPairsAreComparable(t *testing.T) {
	for rounds, hops := range map[int][]float64{2: {50}, 4: {50, 150}, 3: {50, 50, 150, 150, 150, 150, 150, 150, 150}} {
		s := bench(2, func(tool, []string) (figures, error) { return figures{rate: 1e6}, nil })
		n := 0
		s.hop = func() float64 {
			n++
			return hops[(n-1)%len(hops)]
		}
		results := s.all(t.Context(), []row{{test: "x", size: 8, metric: rate, variants: printed}})
		assert.Len(t, results[0].pairs, rounds)
	}
}
