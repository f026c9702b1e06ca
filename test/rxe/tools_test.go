package rxe

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/test/rxe/vm"
)

// toolPrograms lists programs of the host that the tests run in the machine, some several times.
func toolPrograms() []string {
	names := []string{"grep", "tc", "ibv_uc_pingpong", "ibv_ud_pingpong"}
	for _, x := range exchanges {
		names = append(names, x.program)
	}
	for _, g := range goldens {
		names = append(names, g.program)
	}
	return names
}

// toolPort is the TCP port on which the tools exchange queue pair numbers.
const toolPort = 18515

// runPair runs a server and, once it listens on toolPort, its client. Both must end with status 0.
func runPair(t *testing.T, server, client vm.Job) (s, c *vm.Result) {
	t.Helper()
	m := machine(t)
	p, err := m.Start(server)
	require.NoError(t, err)
	wait := fmt.Sprintf("until grep -q ':%X 0*:0000 0A' /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done", toolPort)
	listens, err := m.Start(vm.Job{Argv: []string{"sh", "-c", wait}, Peer: server.Peer, Limit: 20 * time.Second})
	require.NoError(t, err)
	select {
	case <-listens.Done():
	case <-p.Done():
		s, err = p.Wait()
		require.NoError(t, err)
		require.NoError(t, listens.Signal(syscall.SIGKILL))
		t.Fatalf("the server ended before its client began: %s: status %d %s\n%s%s", strings.Join(server.Argv, " "), s.Status, s.Failure, s.Stdout, s.Stderr)
	}
	c, err = m.Run(client)
	require.NoError(t, err)
	if !c.OK() {
		require.NoError(t, p.Signal(syscall.SIGTERM)) // it waits for a client
	}
	s, err = p.Wait()
	require.NoError(t, err)
	requireOK(t, "client "+strings.Join(client.Argv, " "), c)
	requireOK(t, "server "+strings.Join(server.Argv, " "), s)
	return s, c
}

// TestTools: the ping-pongs of rdma-core run between rxe0 and rxe1, so that the machine's network and devices are known to be right
// where a test of ours fails.
func TestTools(t *testing.T) {
	defer spent("ping-pongs between two rxe devices", time.Now())
	for _, tool := range []string{"ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"} {
		for gid, family := range map[int]string{1: "IPv4", 2: "IPv6"} { // index of the GID; they connect over IPv4
			if testing.Short() && (tool != "ibv_rc_pingpong" || gid != 1) {
				continue
			}
			t.Run(tool+" "+family, func(t *testing.T) {
				argv := []string{tool, "-g", strconv.Itoa(gid), "-n", "50", "-d"}
				job := func(more ...string) vm.Job {
					return vm.Job{Argv: append(argv[:len(argv):len(argv)], more...), Limit: 30 * time.Second}
				}
				s, c := runPair(t, job("rxe0"), job("rxe1", "10.77.0.1"))
				require.Contains(t, s.Stdout, "50 iters in")
				require.Contains(t, c.Stdout, "50 iters in")
			})
		}
	}
}
