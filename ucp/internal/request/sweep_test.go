package request

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// fullTable has n slots with buffers, of which every third is of an operation that has
// not ended.
func fullTable(n int) *Table {
	var b Table
	for len(b.Slots) < n {
		b.Grow()
	}
	for i := range b.Slots {
		b.Bufs[i] = make([]byte, 1)
		b.Slots[i].State = State(i % 3)
	}
	return &b
}

// held counts the buffers that sweeps are to drop, and those that they are to keep.
func (b *Table) held() (drop, keep int) {
	for i := range b.Slots[1:] {
		switch {
		case b.Bufs[i+1] == nil:
		case b.Slots[i+1].State == StateLive:
			keep++
		default:
			drop++
		}
	}
	return drop, keep
}

// Passes reach every slot within the sweep's time, however many slots there are and
// however seldom passes come.
func TestTidyReachesEverySlotInTime(t *testing.T) {
	for _, every := range []time.Duration{20 * time.Microsecond, 3 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second} {
		b := fullTable(100_000)
		_, live := b.held()
		now := ucs.Time(time.Second)
		b.Tidy(now)
		for end := now.Add(max(sweepTime, every) + every); now.Before(end); {
			now = now.Add(every)
			b.Tidy(now)
		}
		drop, keep := b.held()
		assert.Zero(t, drop, "passes every %v", every)
		assert.Equal(t, live, keep)
	}
}

// A worker that sleeps sweeps before, and once more soon after it did so.
func TestSweepBeforeSleep(t *testing.T) {
	b := fullTable(1000)
	now := ucs.Time(time.Second)
	require.Zero(t, b.SweepAll(now))
	drop, _ := b.held()
	require.Zero(t, drop)

	b.Bufs[1], b.Slots[1].State = make([]byte, 1), StateDone
	wait := b.SweepAll(now.Add(time.Millisecond))
	require.Positive(t, wait)
	require.Less(t, wait, sweepTime)
	drop, _ = b.held()
	require.Equal(t, 1, drop, "sweeping before each sleep would cost too much")
	require.Zero(t, b.SweepAll(now.Add(time.Millisecond+wait)), "then it sleeps without a bound")
	drop, _ = b.held()
	require.Zero(t, drop)
}
