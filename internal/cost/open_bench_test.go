package cost

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

// BenchmarkOpen is what opening takes with all transports, and with those within a
// host alone: a context and its first worker with their descriptors, and each
// further worker. In a new process, as -benchtime 1x has it, the kernel adds to the
// first of all what it does once.
func BenchmarkOpen(b *testing.B) {
	for _, tls := range []string{"all", "self,shm"} {
		b.Run(tls, func(b *testing.B) {
			b.Setenv("UCX_TLS", tls)
			b.Run("context", func(b *testing.B) { benchContext(b, false) })
			b.Run("first-worker", func(b *testing.B) { benchContext(b, true) })
			b.Run("worker", benchWorker)
		})
	}
}

// benchContext opens contexts, each with a worker, and times one of the two.
func benchContext(b *testing.B, timeWorker bool) {
	b.ReportAllocs()
	took := 0
	for b.Loop() {
		b.StopTimer()
		before := descriptors(b)
		if !timeWorker {
			b.StartTimer()
		}
		c, err := goucx.Open(ucp.Config{})
		require.NoError(b, err)
		if timeWorker {
			before = descriptors(b)
			b.StartTimer()
			newWorker(b, c)
		}
		b.StopTimer()
		took += descriptors(b) - before
		require.NoError(b, c.Close())
		b.StartTimer()
	}
	b.ReportMetric(float64(took)/float64(b.N), "descriptors")
}

// benchWorker makes further workers of one context.
func benchWorker(b *testing.B) {
	b.ReportAllocs()
	c, err := goucx.Open(ucp.Config{})
	require.NoError(b, err)
	newWorker(b, c)
	before := descriptors(b)
	for b.Loop() {
		newWorker(b, c)
	}
	b.ReportMetric(float64(descriptors(b)-before)/float64(b.N), "descriptors")
	require.NoError(b, c.Close())
}

// descriptors counts those of the process.
func descriptors(t testing.TB) int {
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}
