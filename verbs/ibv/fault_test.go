//go:build linux && cgo && ibverbs

package ibv

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// TestWhyNone: what a host lacks that has no usable device, and what to do.
func TestWhyNone(t *testing.T) {
	class, node := classDir, nodeDir
	t.Cleanup(func() { classDir, nodeDir = class, node })
	dir := t.TempDir()
	classDir, nodeDir = filepath.Join(dir, "class"), filepath.Join(dir, "dev")
	why := func(words ...string) {
		t.Helper()
		err := whyNone()
		require.ErrorIs(t, err, ErrNoDevice)
		require.ErrorIs(t, err, ucs.ErrUnsupported)
		for _, w := range words {
			require.ErrorContains(t, err, w)
		}
	}
	why("no RDMA device: neither "+classDir, "load the driver", "ib_uverbs", "--device "+nodeDir)
	require.NoError(t, os.Mkdir(nodeDir, 0o700))
	why("none in "+classDir, "rdma link add")
	require.NoError(t, os.MkdirAll(filepath.Join(classDir, "mlx5_0"), 0o700))
	why("the kernel has mlx5_0", "no "+nodeDir+"/uverbs0", "ib_uverbs", "--device")
	require.NoError(t, os.WriteFile(filepath.Join(nodeDir, "uverbs0"), nil, 0o600))
	why("the kernel has mlx5_0", "libibverbs has no driver", "install ibverbs-providers")

	verbsDir := filepath.Join(dir, "infiniband_verbs/uverbs7")
	require.NoError(t, os.MkdirAll(verbsDir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(verbsDir, "ibdev"), []byte("mlx5_0\n"), 0o600))
	err := openFault("mlx5_0", unix.EACCES)
	require.ErrorIs(t, err, ErrPermission)
	require.ErrorContains(t, err, "open "+nodeDir+"/uverbs7 for reading and writing")
	err = openFault("mlx5_0", unix.ENOENT)
	require.ErrorIs(t, err, ErrNoDevice)
	require.ErrorContains(t, err, nodeDir+"/uverbs7 is missing: load the module ib_uverbs")
	require.ErrorIs(t, openFault("mlx5_0", unix.ENODEV), ErrDeviceGone)

	// Without udev's links in /dev/char, as in containers, libibverbs reports that one of these is missing.
	require.NoError(t, os.WriteFile(filepath.Join(nodeDir, "uverbs7"), nil, 0o000))
	if os.Geteuid() == 0 {
		runtime.LockOSThread() // the identity is the thread's
		require.NoError(t, unix.Setfsuid(65534))
		defer func() { require.NoError(t, unix.Setfsuid(0)) }()
	}
	err = openFault("mlx5_0", unix.ENOENT)
	require.ErrorIs(t, err, ErrPermission)
	require.NotErrorIs(t, err, ErrNoDevice)
}

// TestMemlock: a call that pins too much memory names the limit. Other errors keep their meaning.
func TestMemlock(t *testing.T) {
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	low := unix.Rlimit{Cur: min(64<<10, old.Max), Max: old.Max}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &low))
	t.Cleanup(func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)) })
	err := memoryFault(unix.ENOMEM)
	require.ErrorIs(t, err, ErrMemlock)
	require.ErrorIs(t, err, ucs.ErrNoMemory)
	require.ErrorContains(t, err, "locked memory is limited: RLIMIT_MEMLOCK is "+sizeText(low.Cur)) // as in docs/rdma.md
	require.ErrorContains(t, err, "ulimit -l unlimited")
	err = memoryFault(unix.EINVAL)
	require.ErrorIs(t, err, ucs.ErrInvalid)
	require.NotErrorIs(t, err, ErrMemlock)
	if low.Max == unlimited {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unlimited, Max: unlimited}))
		err = memoryFault(unix.ENOMEM)
		require.ErrorIs(t, err, ucs.ErrNoMemory)
		require.NotErrorIs(t, err, ErrMemlock, "no limit, no limit reached")
	}
}

// TestReturned: the sentinels of error numbers, which some calls return negated.
func TestReturned(t *testing.T) {
	require.NoError(t, returned(int32(0)))
	require.ErrorIs(t, returned(int32(unix.ENETDOWN)), ErrPortDown)
	require.ErrorIs(t, returned(-int32(unix.EIO)), ErrDeviceGone)
	require.ErrorIs(t, returned(int32(unix.ENOTCONN)), unix.ENOTCONN)
}
