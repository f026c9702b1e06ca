package platform

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestReasonsNameTheOperation lets every step of the probes run out of
// descriptors in turn: each reason says what failed, not only how.
func TestReasonsNameTheOperation(t *testing.T) {
	probe() // what the runtime opens at first use is open now
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	free := uint64(f.Fd())
	require.NoError(t, f.Close())
	refused := map[string]bool{}
	for more := range uint64(8) {
		for _, f := range probeWith(t, free+more) {
			if !f.Available {
				refused[f.Name] = true
				assert.Regexp(t, `^[a-z_]+[^:]*: .`, f.Reason, "%s with %d descriptors", f.Name, more)
			}
		}
	}
	for _, name := range []string{Memfd, AbstractSockets, FDPassing, EventFD, PidfdOpen, PeerPidfd} {
		assert.True(t, refused[name], name)
	}
}

// probeWith probes while only descriptors below limit may be opened.
func probeWith(t *testing.T, limit uint64) []Feature {
	t.Helper()
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: old.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	return probe()
}
