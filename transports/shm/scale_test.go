package shm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// TestThousandsOfConnections to one worker, of which most sleep: each is heard,
// and each can be answered.
func TestThousandsOfConnections(t *testing.T) {
	n, pairs := 4500, 500
	if race.Enabled || testing.Short() {
		n, pairs = 150, 100 // under the race detector waking one takes a tenth of a second
	}
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	old := limit
	limit.Cur = limit.Max
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	t.Cleanup(func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) })
	if limit.Cur < 1<<20 {
		n = min(n, (int(limit.Cur)-500)/4)
	}
	require.Greater(t, n, pairs, "more than keep their memory; %d descriptors are allowed", limit.Cur)
	before := countFDs(t)
	var ra, rb recorder
	env := fmt.Sprintf("UCX_SHM_MAX_PAIRS=%d", pairs)
	a, b := openWith(t, &ra, env), openWith(t, &rb, env)
	heard := make([]int, n)
	rb.onAM = func(d uct.Desc, _ []byte) { heard[d.Header]++ }
	es := make([]*ep, n)
	for i := range es {
		es[i] = connectTest(t, a, b)
		require.Equal(t, ucs.OK, es[i].AMUint64(1, uint64(i), 0))
		if i%16 == 0 {
			a.Progress(64)
			b.Progress(64)
		}
	}
	until(t, func() bool { return rb.n == n }, a, b)
	until(t, func() bool { return a.mappedConns <= pairs && b.mappedConns <= pairs }, a, b)
	t.Logf("%d connections, %d with memory, %d descriptors of both sides", n, b.mappedConns, countFDs(t)-before)
	for i, e := range es {
		until(t, func() bool { return e.AMUint64(1, uint64(i), 0) == ucs.OK }, a, b)
	}
	until(t, func() bool { return rb.n == 2*n }, a, b)
	for i := range heard {
		require.Equal(t, 2, heard[i], "connection %d", i)
	}
	require.Empty(t, ra.failures)
	require.Empty(t, rb.failures)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.Equal(t, before, countFDs(t))
}
