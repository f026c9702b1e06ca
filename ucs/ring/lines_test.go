package ring

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWritersHaveLinesOfTheirOwn: no two words of the control block that different sides write are in one cache line, but for
// the mailbox, which passes from side to side on purpose. A cell, and a message in the bulk area, begin at a line.
func TestWritersHaveLinesOfTheirOwn(t *testing.T) {
	words := []struct {
		name, writer string
		offset, size int
	}{
		{"info", "creator", offInfo, 16},
		{"waiting", "producer", offWaiting, 4},
		{"cell tail", "consumer", offCellTail, 8},
		{"bulk tail", "consumer", offBulkTail, 8},
		{"polled", "consumer", offPolled, 4},
		{"mailbox", "both", offMailbox, MailboxSize},
		{"cells", "producer", controlBytes, CellSize},
	}
	for i, a := range words {
		require.LessOrEqual(t, a.offset/CellSize, (a.offset+a.size-1)/CellSize)
		for _, b := range words[:i] {
			if a.writer != b.writer {
				require.NotEqual(t, a.offset/CellSize, (b.offset+b.size-1)/CellSize, "%s and %s are in one line", a.name, b.name)
			}
		}
	}
	require.NotEqual(t, offCellTail/CellSize, offPolled/CellSize, "what the producer reads for each message, and what the consumer writes per batch")
	require.Zero(t, controlBytes%CellSize)
	require.Zero(t, offMailbox%CellSize)
	p, _, a := newPair(t, testLayout)
	require.True(t, aligned(a))
	for _, n := range []int{49, 100, 1000} {
		at, ok := p.Reserve(n)
		require.True(t, ok)
		require.True(t, aligned(at), "a message of %d bytes", n)
		p.Commit(1, 0, n, false)
	}
}

// BenchmarkPadding sends messages to and fro between two goroutines, in rounds that take turns: through rings with the
// control words where they are, and with those of both sides in one line. It needs two processors, and reports the
// median time of a hop of either form.
func BenchmarkPadding(b *testing.B) {
	if runtime.GOMAXPROCS(0) < 2 {
		b.Skip("one processor: nothing is shared")
	}
	const hops = 20_000
	var took [2][]float64
	for b.Loop() {
		for packed := range took {
			start := time.Now()
			hop(b, hops, packed == 1)
			took[packed] = append(took[packed], float64(time.Since(start).Nanoseconds())/hops/2)
		}
	}
	for packed, name := range []string{"apart-ns/hop", "one-line-ns/hop"} {
		slices.Sort(took[packed])
		b.ReportMetric(took[packed][len(took[packed])/2], name)
	}
}

// hop sends n messages to and fro.
func hop(b *testing.B, n int, packed bool) {
	l := Layout{Cells: 32, Bulk: 1024}
	var ps [2]*Producer
	var cs [2]*Consumer
	for i := range ps {
		p, c, mem := newPair(b, l)
		if packed {
			p.waiting, c.waiting = uint32At(mem, offCellTail+16), uint32At(mem, offCellTail+16)
			p.polled, c.polled = uint32At(mem, offCellTail+24), uint32At(mem, offCellTail+24)
		}
		c.SetPolled(true)
		ps[i], cs[1-i] = p, c
	}
	side := func(i int) {
		var m Message
		for range n {
			if i == 0 {
				send(ps[i], 1, 2, nil)
				ps[i].Polled() // as each send of shm does
			}
			for more := false; !more; {
				more, _ = cs[i].Next(&m)
			}
			cs[i].Release()
			if i == 1 {
				send(ps[i], 1, 2, nil)
				ps[i].Polled()
			}
		}
	}
	var done sync.WaitGroup
	done.Go(func() { side(1) })
	side(0)
	done.Wait()
}
