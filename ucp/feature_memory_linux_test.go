package ucp_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/uct"
)

// TestFeatureMemory logs the figures of docs/features.md: the memory of a worker by the features
// of its context. No feature set takes more than all features do.
func TestFeatureMemory(t *testing.T) {
	skipUnderRace(t)
	sets := []struct {
		name string
		f    ucp.Feature
	}{
		{"tag", ucp.FeatureTag}, {"AM", ucp.FeatureAM}, {"RMA", ucp.FeatureRMA}, {"atomics", ucp.FeatureAtomics}, {"all", 0},
	}
	for _, tr := range []string{"shm", "rc", "ud", "all transports"} {
		var line []string
		var heaps []int64
		for _, set := range sets {
			heap, mapped := workerMemory(t, tr, set.f)
			heaps = append(heaps, heap)
			line = append(line, fmt.Sprintf("%s %d+%d", set.name, heap>>10, mapped>>10))
		}
		t.Logf("KiB of heap + mapped, %s: %s", tr, strings.Join(line, ", "))
		for i, h := range heaps[:len(heaps)-1] {
			assert.LessOrEqual(t, float64(h), 1.1*float64(heaps[len(heaps)-1])+16<<10, "%s, %s", tr, sets[i].name)
		}
	}
}

// workerMemory returns the heap and the mapped memory of one more worker.
func workerMemory(t *testing.T, tr string, f ucp.Feature) (heapBytes, mapped int64) {
	t.Helper()
	providers := provider(tr)
	if providers == nil {
		providers = transports.All()
	}
	c := openInproc(t, providers, f)
	first, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	const n = 8
	h, m := heap(), mappedBytes(t)
	for range n {
		_, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
		require.NoError(t, err)
	}
	h, m = heap()-h, mappedBytes(t)-m
	require.NoError(t, first.Close())
	require.NoError(t, c.Close())
	return h / n, m / n
}

func openInproc(t *testing.T, providers []uct.Component, f ucp.Feature) *ucp.Context {
	t.Helper()
	set, _, err := config.Load(config.Options{Env: []string{"UCX_SOFT_LINK=inproc"}, Dirs: []string{}}, ucp.Tables(providers)...)
	require.NoError(t, err)
	c, err := ucp.Open(ucp.Config{Providers: providers, Features: f, Settings: set})
	require.NoError(t, err)
	return c
}

// mappedBytes returns the resident memory of the process that is shared, or of files.
func mappedBytes(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	var total int64
	for l := range strings.SplitSeq(string(b), "\n") {
		for _, name := range []string{"RssFile:", "RssShmem:"} {
			if v, ok := strings.CutPrefix(l, name); ok {
				var k int64
				_, err := fmt.Sscan(v, &k)
				require.NoError(t, err)
				total += k << 10
			}
		}
	}
	return total
}
