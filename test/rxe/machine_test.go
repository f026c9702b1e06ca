package rxe

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/test/rxe/vm"
)

// TestJobs: how jobs end is reported as it was.
func TestJobs(t *testing.T) {
	m := machine(t)
	r, err := m.Run(vm.Job{Argv: []string{"sh", "-c", "echo out; echo err >&2; echo $A $PWD; exit 7"}, Env: []string{"A=a"}, Dir: "/etc"})
	require.NoError(t, err)
	assert.Equal(t, "out\na /etc\n", r.Stdout)
	assert.Equal(t, "err\n", r.Stderr)
	assert.Equal(t, 7, r.Status)
	assert.False(t, r.OK())

	r, err = m.Run(vm.Job{Argv: []string{"no-such-program"}})
	require.NoError(t, err)
	assert.Contains(t, r.Failure, "not found")
	assert.False(t, r.OK())

	// Its child holds stdout for longer than the limit.
	r, err = m.Run(vm.Job{Argv: []string{"sh", "-c", "echo early; sleep 100 & sleep 100"}, Limit: time.Second})
	require.NoError(t, err)
	assert.True(t, r.TimedOut)
	assert.Equal(t, "killed", r.Signal)
	assert.Equal(t, "early\n", r.Stdout)
	assert.GreaterOrEqual(t, r.Took, time.Second)

	p, err := m.Start(vm.Job{Argv: []string{"sleep", "100"}})
	require.NoError(t, err)
	require.NoError(t, p.Signal(syscall.SIGTERM))
	r, err = p.Wait()
	require.NoError(t, err)
	assert.Equal(t, "terminated", r.Signal)
	assert.False(t, r.TimedOut)
	assert.False(t, r.OK())
}

// TestTopology: the verbs devices and addresses are those of package vm's documentation.
func TestTopology(t *testing.T) {
	for device, addrs := range map[string][2]string{"rxe0": {"0a4d:0001", "fd77:0000:0000:0000:0000:0000:0000:0001"}, "rxe1": {"0a4d:0003", "fd77:0000:0000:0000:0000:0000:0000:0003"}} {
		out := run(t, vm.Job{Argv: []string{"ibv_devinfo", "-d", device, "-v"}}).Stdout
		for _, want := range []string{"PORT_ACTIVE", "active_mtu:\t\t4096", "GID[  1]"} {
			assert.Contains(t, out, want)
		}
		out = run(t, vm.Job{Argv: []string{"sh", "-c", "cat /sys/class/infiniband/" + device + "/ports/1/gids/1 /sys/class/infiniband/" + device + "/ports/1/gids/2"}}).Stdout
		assert.Equal(t, "0000:0000:0000:0000:0000:ffff:"+addrs[0]+"\n"+addrs[1]+"\n", out)
	}
	assert.Empty(t, run(t, vm.Job{Argv: []string{"ip", "-o", "addr", "show", "dev", "pe0", "tentative"}, Peer: true}).Stdout)
	assert.Contains(t, run(t, vm.Job{Argv: []string{"ip", "-o", "addr", "show", "dev", "pe0"}, Peer: true}).Stdout, "10.77.0.2/24")
}
