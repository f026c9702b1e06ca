package shm

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Where segments can be made but their descriptors do not arrive, the transport
// is refused before anybody connects.
func TestDomainsTriesDescriptorPassing(t *testing.T) {
	infos, refused := Component().Domains(nil) // what the runtime opens at first use is open now
	require.Len(t, infos, 1)
	require.Empty(t, refused)
	var free [2]*os.File // the lowest two, between which others may be open
	for i := range free {
		var err error
		free[i], err = os.Open(os.DevNull)
		require.NoError(t, err)
	}
	limit := uint64(free[1].Fd()) + 1
	for _, f := range free {
		require.NoError(t, f.Close())
	}
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: old.Max}))
	infos, refused = Component().Domains(nil) // the socket pair takes both descriptors
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	assert.Empty(t, infos)
	require.Len(t, refused, 1)
	assert.Equal(t, "shm/memory", refused[0].Transport+"/"+refused[0].Device)
	assert.Contains(t, refused[0].Reason, "no descriptors can be passed between processes: recvmsg: ")
}
