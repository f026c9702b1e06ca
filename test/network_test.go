//go:build linux

package test

import (
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
	require.NoError(n.t, err, "ip (of iproute2) %s: %s", args, out)
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
