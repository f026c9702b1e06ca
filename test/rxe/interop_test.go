package rxe

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/test/rxe/vm"
)

// exchange is a run of a program of rdma-core or perftest on rxe0, whose other side is internal/rdmapeer on a soft device
// over UDP in namespace peer. rdmapeer checks the data. Each is run twice: the soft side is the server, or the
// client.
type exchange struct {
	program string
	options string // of both sides
	ipv6    bool
	short   bool // is run with -short, too
}

var exchanges = []exchange{
	{program: "ibv_rc_pingpong", options: "-n 100", short: true},
	{program: "ibv_rc_pingpong", options: "-n 50 -s 65536 -m 4096 -e", ipv6: true},
	{program: "ibv_uc_pingpong", options: "-n 50"},
	{program: "ibv_ud_pingpong", options: "-n 50"},
	{program: "ibv_srq_pingpong", options: "-n 100"},

	{program: "ib_send_lat", options: "-n 100 -s 64 -I 64", ipv6: true, short: true},
	{program: "ib_send_lat", options: "-n 50 -s 1000 -e"},
	{program: "ib_send_lat", options: "-n 50 -s 1000 -c UD", short: true},
	{program: "ib_send_lat", options: "-n 50 -s 64 -c UD", ipv6: true},
	{program: "ib_send_bw", options: "-n 100 -s 10000 -m 256"},
	{program: "ib_send_bw", options: "-n 100 -s 10000 -m 512", ipv6: true},
	{program: "ib_send_bw", options: "-n 100 -s 10000 -m 1024 -q 4 -b"},
	{program: "ib_send_bw", options: "-n 100 -s 10000 -m 2048 --use-srq -q 4"},
	{program: "ib_send_bw", options: "-n 100 -s 10000 -m 4096 -b", ipv6: true},
	{program: "ib_send_bw", options: "-n 5 -s 4194304 -m 4096"},
	{program: "ib_send_bw", options: "-n 200 -s 1000 -c UD"},

	{program: "ib_write_lat", options: "-n 100 -s 8", short: true},
	{program: "ib_write_lat", options: "-n 50 -s 5000 -m 1024", ipv6: true},
	{program: "ib_write_bw", options: "-n 100 -s 65536 -m 4096 -q 4", short: true},
	{program: "ib_write_bw", options: "-n 5 -s 4194304 -m 1024", ipv6: true},
	{program: "ib_write_bw", options: "-n 100 -s 1 -b"},

	{program: "ib_read_lat", options: "-n 100 -s 8"},
	{program: "ib_read_bw", options: "-n 50 -s 65536 -m 1024 -q 4", short: true},
	{program: "ib_read_bw", options: "-n 5 -s 4194304 -m 4096", ipv6: true},
	{program: "ib_read_bw", options: "-n 50 -s 3000 -m 256 -b"},

	{program: "ib_atomic_lat", options: "-n 100", ipv6: true},
	{program: "ib_atomic_lat", options: "-n 50 -A CMP_AND_SWAP", short: true},
	{program: "ib_atomic_bw", options: "-n 100 -q 4 -A FETCH_AND_ADD"},
}

// exchangeLimit bounds each side of an exchange.
const exchangeLimit = 40 * time.Second

// rxeSide returns the kernel's side; server is the address of the other side where that serves.
func (x *exchange) rxeSide(server string) vm.Job {
	gid := map[bool]string{false: "1", true: "2"}[x.ipv6] // its index, see TestTopology
	argv := []string{x.program, "-d", "rxe0"}
	if strings.HasPrefix(x.program, "ibv_") {
		argv = append(argv, "-g", gid)
	} else {
		// -u: with the default time-out the kernel retransmits while it sends, and emits an empty SEND at an old PSN.
		argv = append(argv, "-F", "-u", "18", "-x", gid)
	}
	argv = append(argv, strings.Fields(x.options)...)
	if server != "" {
		argv = append(argv, server)
	}
	return vm.Job{Argv: argv, Limit: exchangeLimit}
}

// softSide returns the side of the soft device.
func (x *exchange) softSide(server string) vm.Job {
	argv := []string{"rdmapeer", "-limit", "35s", "-addr", map[bool]string{false: "10.77.0.2", true: "fd77::2"}[x.ipv6]}
	argv = append(argv, strings.Fields(x.options)...)
	argv = append(argv, x.program)
	if server != "" {
		argv = append(argv, server)
	}
	return vm.Job{Argv: argv, Peer: true, Limit: exchangeLimit}
}

// run runs the exchange in one direction. Both sides connect over IPv4, whatever the GIDs are.
func (x *exchange) run(t *testing.T, softServes bool) {
	provide(t, rdmapeer)
	if softServes {
		soft, _ := runPair(t, x.softSide(""), x.rxeSide("10.77.0.2"))
		assert.NotEmpty(t, soft.Stdout)
		return
	}
	_, soft := runPair(t, x.rxeSide(""), x.softSide("10.77.0.1"))
	assert.NotEmpty(t, soft.Stdout)
}

// TestInterop: the software RNIC works with the kernel's driver and the programs of rdma-core and
// perftest on the other side.
func TestInterop(t *testing.T) {
	defer spent("programs on rxe against soft devices", time.Now())
	for _, x := range exchanges {
		if testing.Short() && !x.short {
			continue
		}
		name := x.program + " " + x.options
		if x.ipv6 {
			name += " IPv6"
		}
		t.Run(name+" soft serves", func(t *testing.T) { x.run(t, true) })
		t.Run(name+" rxe serves", func(t *testing.T) { x.run(t, false) })
	}
}
