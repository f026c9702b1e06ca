package cost

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

// used is what this process takes.
type used struct {
	heap   int // bytes in use after a collection
	mapped int // bytes of segments that are mapped
	files  int // descriptors
}

func (u used) minus(v used) used {
	return used{u.heap - v.heap, u.mapped - v.mapped, u.files - v.files}
}

func usage(t testing.TB) used {
	runtime.GC()
	runtime.GC() // what the first one's finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return used{int(m.HeapAlloc), mapped(t, maps), len(files)}
}

// mapped adds up the mappings of files without a name, as shared memory has
// them.
func mapped(t testing.TB, maps []byte) int {
	sum := 0
	for line := range bytes.Lines(maps) {
		if !bytes.Contains(line, []byte("/memfd:")) {
			continue
		}
		var from, to int
		_, err := fmt.Sscanf(string(line), "%x-%x", &from, &to)
		require.NoError(t, err)
		sum += to - from
	}
	return sum
}

// openContext opens the transports of that UCX_TLS.
func openContext(t testing.TB, tls string) *ucp.Context {
	t.Setenv("UCX_TLS", tls)
	c, err := goucx.Open(ucp.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func newWorker(t testing.TB, c *ucp.Context) *ucp.Worker {
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	return w
}
