package suitetest

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// ownNetworkEnv is set in a process that runs one test in its own network namespace.
const ownNetworkEnv = "GOUCX_TEST_OWN_NETWORK"

// InOwnNetwork runs the test again in a process that is root of its own network namespace, and
// returns true there. When that process exits, all processes that it started are killed. In the
// first process the test is a parallel one. It is skipped if the system does not permit namespaces.
func InOwnNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownNetworkEnv) != "" {
		return true
	}
	t.Parallel()
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
	c.Env = append(os.Environ(), ownNetworkEnv+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	out, err := c.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
		t.Skipf("the system does not permit a network namespace: %v", err)
	}
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
	return false
}
