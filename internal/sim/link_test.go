package sim

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// bad has every fault.
var bad = Link{
	Latency: 10 * time.Microsecond, Bandwidth: 1e9, Overhead: 46, Queue: 20_000,
	Loss: 0.05, Duplicate: 0.05, Reorder: 0.1, Jitter: 50 * time.Microsecond,
	Corrupt: 0.02, Stall: 0.01, StallFor: 100 * time.Microsecond,
}

// busy runs three nodes over bad links and gives the whole trace.
func busy(seed uint64) (string, Counts) {
	n := New(seed)
	n.SetDefault(bad)
	n.KeepTrace(100_000, nil)
	nodes := []netip.AddrPort{a, b, c}
	for _, at := range nodes {
		n.Attach(at, func(from netip.AddrPort, p []byte, _ ucs.Time) {
			if len(p) > 100 {
				n.Send(at, from, p[:len(p)/2])
			}
		})
	}
	for i := range 500 {
		n.At(Start.Add(time.Duration(i)*time.Microsecond), func(ucs.Time) {
			n.Send(nodes[n.Rand().IntN(3)], nodes[n.Rand().IntN(3)], make([]byte, 4+n.Rand().IntN(4000)))
		})
	}
	n.Run(100_000)
	return n.Trace(), n.Counts()
}

// TestDeterministic wants the same run from the same seed, another one from
// another.
func TestDeterministic(t *testing.T) {
	first, counts := busy(7)
	again, _ := busy(7)
	other, _ := busy(8)
	assert.True(t, first == again, "the same seed gives another run")
	assert.False(t, first == other, "another seed gives the same run")
	assert.Greater(t, counts.Delivered, 1000)
	for name, c := range map[string]int{"lost": counts.Lost, "twice": counts.Duplicated, "corrupt": counts.Corrupted, "late": counts.Delayed} {
		assert.NotZero(t, c, name)
	}
	// Not one datagram is unaccounted for.
	gone := counts.Lost + counts.QueueFull + counts.Partitioned + counts.TooLong + counts.NoNode
	assert.Equal(t, counts.Sent+counts.Duplicated, counts.Delivered+gone)
}

// TestFrequency counts each fault alone: within six standard deviations, and
// the others do not occur.
func TestFrequency(t *testing.T) {
	const count, p = 20_000, 0.05
	for name, tc := range map[string]struct {
		link Link
		get  func(c *Counts) *int
	}{
		"loss":      {Link{Loss: p}, func(c *Counts) *int { return &c.Lost }},
		"duplicate": {Link{Duplicate: p}, func(c *Counts) *int { return &c.Duplicated }},
		"corrupt":   {Link{Corrupt: p}, func(c *Counts) *int { return &c.Corrupted }},
		"reorder":   {Link{Reorder: p, Jitter: time.Microsecond}, func(c *Counts) *int { return &c.Delayed }},
	} {
		t.Run(name, func(t *testing.T) {
			n := New(3)
			n.SetLink(a, b, tc.link)
			collect(n, b)
			sendMany(n, a, b, count, 64, time.Millisecond)
			require.True(t, n.Run(10*count))
			c := n.Counts()
			// sqrt(20000 · 0.05 · 0.95) = 31
			assert.InDelta(t, count*p, *tc.get(&c), 6*31)
			*tc.get(&c) = 0
			c.Delivered = 0
			assert.Equal(t, Counts{Sent: count}, c)
		})
	}
}

// TestFaultsAlone wants the same datagrams lost whatever other faults there are,
// and whatever other links do.
func TestFaultsAlone(t *testing.T) {
	lost := func(l Link, others bool) []int {
		n := New(5)
		n.SetLink(a, b, l)
		got := collect(n, b)
		sendMany(n, a, b, 1000, 64, time.Microsecond)
		if others {
			sendMany(n, b, a, 1000, 64, time.Microsecond)
		}
		require.True(t, n.Run(10_000))
		arrived := numbers(*got)
		return slices.DeleteFunc(upTo(1000), func(i int) bool { return slices.Contains(arrived, i) })
	}
	want := lost(Link{Loss: 0.1}, false)
	assert.NotEmpty(t, want)
	assert.Equal(t, want, lost(Link{Loss: 0.1, Duplicate: 0.3, Reorder: 0.3, Jitter: time.Second}, true))
}

// TestReorder wants some to be overtaken, none lost, none later than the jitter.
func TestReorder(t *testing.T) {
	n := New(1)
	n.SetDefault(Link{Latency: 10 * time.Microsecond, Reorder: 0.2, Jitter: 20 * time.Microsecond})
	got := collect(n, b)
	sendMany(n, a, b, 1000, 8, time.Microsecond)
	require.True(t, n.Run(10_000))
	order := numbers(*got)
	assert.False(t, slices.IsSorted(order))
	for _, r := range *got {
		late := r.at.Sub(Start) - time.Duration(r.n)*time.Microsecond - 10*time.Microsecond
		require.True(t, late >= 0 && late < 20*time.Microsecond, "datagram %d came %v late", r.n, late)
	}
	slices.Sort(order)
	assert.Equal(t, upTo(1000), order)
}

// TestStall wants a pause in which nothing arrives, and then everything in order.
func TestStall(t *testing.T) {
	n := New(1)
	n.SetDefault(Link{Latency: time.Microsecond, Stall: 0.005, StallFor: 300 * time.Microsecond})
	got := collect(n, b)
	sendMany(n, a, b, 2000, 8, time.Microsecond)
	require.True(t, n.Run(10_000))
	assert.Equal(t, upTo(2000), numbers(*got))
	var longest time.Duration
	for i := range (*got)[1:] {
		longest = max(longest, (*got)[i+1].at.Sub((*got)[i].at))
	}
	assert.Greater(t, longest, 100*time.Microsecond)
	assert.NotZero(t, n.Counts().Delayed)
}

// TestBandwidth sends a burst: the wire spaces it, and what the queue does not
// hold is lost.
func TestBandwidth(t *testing.T) {
	for _, tc := range []struct {
		name         string
		queue, count int
	}{
		{"no limit", 0, 10},
		{"five fit", 5 * 1000, 5},
		{"less than six", 5*1000 + 999, 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := New(1)
			n.SetDefault(Link{Latency: time.Microsecond, Bandwidth: 1e9, Overhead: 100, Queue: tc.queue})
			got := collect(n, b)
			sendMany(n, a, b, 10, 900, 0)
			require.True(t, n.Run(100))
			require.Equal(t, upTo(tc.count), numbers(*got))
			for i, r := range *got {
				assert.Equal(t, Start.Add(time.Duration(i+2)*time.Microsecond), r.at)
			}
			assert.Equal(t, 10-tc.count, n.Counts().QueueFull)
			// The wire is free again afterwards.
			n.Send(a, b, []byte{0, 0, 0, 99})
			require.True(t, n.Run(100))
			assert.Len(t, *got, tc.count+1)
		})
	}
}

func TestMTU(t *testing.T) {
	n := New(1)
	n.SetDefault(Link{MTU: 100})
	got := collect(n, b)
	n.Send(a, b, make([]byte, 100))
	n.Send(a, b, make([]byte, 101))
	require.True(t, n.Run(10))
	assert.Len(t, *got, 1)
	assert.Equal(t, 1, n.Counts().TooLong)
}

// TestFlip wants one to three bits changed, everywhere in a datagram, and the
// duplicate of a corrupted datagram whole.
func TestFlip(t *testing.T) {
	for _, size := range []int{1, 2, 5, 64} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			n := New(1)
			n.SetDefault(Link{Corrupt: 1, Duplicate: 1})
			seen := make([]byte, size)
			counts := [4]int{}
			n.Attach(b, func(_ netip.AddrPort, p []byte, _ ucs.Time) {
				flipped := 0
				for i, v := range p {
					seen[i] |= v
					flipped += bits.OnesCount8(v)
				}
				require.LessOrEqual(t, flipped, 3)
				counts[flipped]++
			})
			for range 4000 {
				n.Send(a, b, make([]byte, size))
			}
			n.Send(a, b, nil)
			require.True(t, n.Run(100_000))
			for _, v := range seen {
				assert.EqualValues(t, 0xff, v)
			}
			assert.Equal(t, 4000+2, counts[0], "the duplicates, and the empty datagram")
			for _, c := range counts[1:] {
				assert.Greater(t, c, 500)
			}
		})
	}
}

// TestReuse wants the bytes of datagrams in flight untouched by later ones.
func TestReuse(t *testing.T) {
	n := New(1)
	n.SetDefault(Link{Latency: 10, Reorder: 0.5, Jitter: 1000})
	n.Attach(b, func(_ netip.AddrPort, p []byte, _ ucs.Time) {
		for _, v := range p {
			require.Equal(t, p[0], v)
		}
	})
	for i := range 1000 {
		p := make([]byte, 1+i%50)
		for j := range p {
			p[j] = byte(i)
		}
		n.Send(a, b, p)
		n.Step()
	}
	require.True(t, n.Run(10_000))
	assert.Equal(t, 1000, n.Counts().Delivered)
}

func BenchmarkSend(bm *testing.B) {
	n := New(1)
	n.SetDefault(bad)
	n.Attach(b, func(netip.AddrPort, []byte, ucs.Time) {})
	p := make([]byte, 64)
	bm.ReportAllocs()
	for bm.Loop() {
		n.Send(a, b, p)
		n.RunUntil(n.Now().Add(time.Microsecond))
	}
}
