package ud

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/uct"
)

// oneProcessor gives the program one processor until the test ends.
func oneProcessor(t *testing.T) {
	was := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(was) })
}

// TestOneProcessor: two programs that share a processor with the goroutines of
// transport and device get all of each other's messages.
func TestOneProcessor(t *testing.T) {
	const rounds = 300
	oneProcessor(t)
	ns := nodes(t, loopback(), 2)
	p := newPair(t, ns)
	bounce := func(n *node, e *endpoint, first bool) {
		for i := range rounds {
			if first {
				until(t, func() bool { return e.AMUint64(1, uint64(i), 0) == ucs.OK }, n)
			}
			until(t, func() bool { cpu.Yield(); return len(n.got) > i+1 }, n)
			if !first {
				until(t, func() bool { return e.AMUint64(1, uint64(i), 0) == ucs.OK }, n)
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { bounce(p.b, p.back, false) })
	bounce(p.a, p.to, true)
	wg.Wait()
	require.Empty(t, p.a.fails)
	require.Empty(t, p.b.fails)
}

// TestOneProcessorComputing: a peer that computes on the only processor still
// acknowledges.
func TestOneProcessorComputing(t *testing.T) {
	oneProcessor(t)
	ns := nodes(t, inproc(), 2)
	p := newPair(t, ns)
	for i := range uct.Token(3) {
		require.Equal(t, ucs.OK, p.to.AMUint64(1, 1, 1))
		require.Equal(t, ucs.InProgress, p.to.Flush(uct.FlushRemote, i+1))
		for sum := 0; ; sum++ { // never yields
			if sum%1_000_000 == 0 {
				if p.a.Progress(64); len(p.a.events) == int(i+1) {
					break
				}
			}
		}
	}
	require.Empty(t, p.a.fails)
}
