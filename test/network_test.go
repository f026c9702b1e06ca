//go:build linux

package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ownNetworkEnv is set in a process that runs one test in a network of its own.
const ownNetworkEnv = "GOUCX_TEST_OWN_NETWORK"

// inOwnNetwork runs the test again in a process that is root of a network
// namespace of its own, and is true there. With that process everything goes.
func inOwnNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownNetworkEnv) != "" {
		return true
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("iproute2 is not installed: %v", err)
	}
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

// network is hosts at a switch: network namespaces of this machine, so all have
// its boot id. Each has one address, 10.9.0.1 and so on, on its interface eth0.
type network struct {
	t     testing.TB
	hosts []*process
}

// roleHost keeps a network namespace.
func roleHost(p *parent) { p.hear() }

func newNetwork(t testing.TB, hosts int) *network {
	t.Helper()
	n := &network{t: t}
	n.ip("link add switch type bridge")
	n.ip("link set switch up")
	for i := range hosts {
		h := start(t, "host", func(c *exec.Cmd) { c.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET })
		n.hosts = append(n.hosts, h)
		n.ip(fmt.Sprintf("link add %s type veth peer name eth0 netns %d", port(i), h.cmd.Process.Pid))
		n.ip(fmt.Sprintf("link set %s master switch up", port(i)))
		n.on(i, func() {
			n.ip("link set lo up")
			n.ip(fmt.Sprintf("addr add 10.9.0.%d/24 dev eth0", i+1))
			n.ip("link set eth0 up")
		})
	}
	return n
}

// port is the switch's side of a host's link.
func port(host int) string { return fmt.Sprint("port", host) }

// cut has everything vanish that goes to the host or comes from it; mend ends that.
func (n *network) cut(host int)  { n.ip("link set " + port(host) + " nomaster") }
func (n *network) mend(host int) { n.ip("link set " + port(host) + " master switch") }

func (n *network) ip(args string) {
	n.t.Helper()
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	require.NoError(n.t, err, "ip %s: %s", args, out)
}

// on calls f in the namespace of a host, which the processes that it starts get.
func (n *network) on(host int, f func()) {
	n.t.Helper()
	own, err := os.Open("/proc/thread-self/ns/net")
	require.NoError(n.t, err)
	defer func() { require.NoError(n.t, own.Close()) }()
	there, err := os.Open("/proc/" + pidOf(n.hosts[host]) + "/ns/net")
	require.NoError(n.t, err)
	defer func() { require.NoError(n.t, there.Close()) }()
	runtime.LockOSThread()
	require.NoError(n.t, unix.Setns(int(there.Fd()), unix.CLONE_NEWNET))
	defer runtime.UnlockOSThread()
	defer func() { require.NoError(n.t, unix.Setns(int(own.Fd()), unix.CLONE_NEWNET)) }()
	f()
}
