package nic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// flood asks for connections from a source at a rate, for some time, and returns what
// was refused and given up.
type flood struct {
	t       *testing.T
	h       HalfOpen[int]
	now     ucs.Time
	next    int
	refused int
	gone    []int
}

func (f *flood) ask(from Source) bool {
	f.next++
	if !f.h.Admit(from, f.now, func(c int) { f.gone = append(f.gone, c) }) {
		f.refused++
		return false
	}
	f.h.Add(f.next, from, f.now)
	require.LessOrEqual(f.t, f.h.Len(), f.h.limit)
	require.LessOrEqual(f.t, f.h.perSource[from], maxHalfOpenPerSource)
	return true
}

// check compares the counts with the list.
func (f *flood) check() {
	sum := 0
	for _, n := range f.h.perSource {
		sum += n
	}
	require.Equal(f.t, f.h.Len(), sum)
}

// TestHalfOpenOfOneSource: one device does not fill the list, and loses its own oldest.
func TestHalfOpenOfOneSource(t *testing.T) {
	f := flood{t: t, h: NewHalfOpen[int](1 << 20)}
	hostile, honest := Source{LID: 1}, Source{LID: 2}
	for range 30_000 { // 10,000 a second
		f.now = f.now.Add(100 * time.Microsecond)
		f.ask(hostile)
		require.LessOrEqual(t, f.h.Len(), maxHalfOpenPerSource)
	}
	f.check()
	require.Positive(t, f.refused)
	require.GreaterOrEqual(t, len(f.gone), 2*maxHalfOpenPerSource)
	require.IsIncreasing(t, f.gone, "the oldest goes first")
	before := len(f.gone)
	require.True(t, f.ask(honest), "another device is not kept out")
	require.Len(t, f.gone, before)
	f.h.Remove(f.next)
	f.h.Remove(f.next)
	require.Equal(t, maxHalfOpenPerSource, f.h.Len())
}

// TestHalfOpenOfManySources: at 10,000 a second from as many devices, one that asks
// every 20 ms, as a peer does that has no answer, is taken within a second, and kept for
// long enough to confirm.
func TestHalfOpenOfManySources(t *testing.T) {
	f := flood{t: t, h: NewHalfOpen[int](1 << 20)}
	honest := Source{LID: 2}
	var asks, taken ucs.Time // since when the honest one asks, and when it was taken
	mine := 0
	for i := range 50_000 {
		f.now = f.now.Add(100 * time.Microsecond)
		s := Source{LID: uint16(i)}
		s.GID[0] = 1
		f.ask(s)
		switch {
		case i < 10_000 || i%200 != 0:
		case mine == 0:
			if asks == 0 {
				asks = f.now
			}
			if f.ask(honest) {
				require.Less(t, f.now.Sub(asks), time.Second)
				mine, taken = f.next, f.now
			}
		case f.now.Sub(taken) < halfOpenMinAge/2:
			require.NotContains(t, f.gone, mine)
		default: // it confirms
			require.NotContains(t, f.gone, mine)
			f.h.Remove(mine)
			mine, asks = 0, 0
		}
	}
	f.check()
	require.Equal(t, MaxHalfOpen, f.h.Len())
	require.Positive(t, len(f.gone))
}

// TestHalfOpenOfSmallDevice leaves most of its queue pairs to others.
func TestHalfOpenOfSmallDevice(t *testing.T) {
	f := flood{t: t, h: NewHalfOpen[int](64)}
	for i := range 100 {
		f.ask(Source{LID: uint16(i)})
	}
	require.Equal(t, 16, f.h.Len())
	require.Empty(t, f.gone, "all are young")
}
