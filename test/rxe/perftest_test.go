package rxe

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/test/rxe/vm"
)

// perftests are runs of ucx_perftest between two processes. The server takes test and devices from the client.
var perftests = []struct {
	options string
	devices [2]string // UCX_NET_DEVICES of server and client; "": not set
	tls     string    // UCX_TLS; "": not set
	names   string    // what the table names: test and transport
	short   bool      // is run with -short, too
}{
	// A test of the protocol layer takes its devices from the settings, as in UCX.
	{"-t tag_lat", [2]string{"rxe0:1", "rxe1:1"}, "rc", "tag match latency", true},
	{"-t tag_lat", [2]string{"rxe0", "rxe0"}, "ud", "tag match latency", false},
	{"-t tag_bw -s 65536", [2]string{"rxe0:1", "rxe1:1"}, "rc", "tag match bandwidth", false},
	{"-t ucp_put_lat", [2]string{"rxe1:1", "rxe1:1"}, "rc", "put latency", false},
	// One of the transport layer has options for them, which hold for both processes.
	{"-t am_lat -x rc -d rxe0", [2]string{}, "", "active message latency", true},
	{"-t put_bw -x rc -d rxe1:1 -D zcopy -s 4096", [2]string{}, "", "put bandwidth / message rate", false},
	{"-t am_lat -x ud -d rxe0", [2]string{}, "", "active message latency", false},
}

// perftestRule and perftestHead are the table of UCX's ucx_perftest, above the rows of results.
const (
	perftestRule = "+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+\n"
	perftestHead = "|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |\n"
)

// perftestRow is the last row: eight numbers.
var perftestRow = regexp.MustCompile(`(?m)^Final:( +[0-9.]+){8}$`)

// TestPerftest: ucx_perftest runs between two processes over rc and ud on the kernel's driver, and prints UCX's
// table.
func TestPerftest(t *testing.T) {
	defer spent("ucx_perftest between two processes", time.Now())
	for _, x := range perftests {
		if testing.Short() && !x.short {
			continue
		}
		t.Run(strings.TrimSpace(x.tls+" "+x.options), func(t *testing.T) {
			provide(t, perftest)
			job := func(side int, argv ...string) vm.Job {
				var env []string
				if x.tls != "" {
					env = []string{"UCX_TLS=" + x.tls, "UCX_NET_DEVICES=" + x.devices[side]}
				}
				return vm.Job{Argv: slices.Concat([]string{perftest.name, "-p", strconv.Itoa(toolPort)}, argv), Env: env, Limit: 40 * time.Second}
			}
			s, c := runPair(t, job(0), job(1, slices.Concat(strings.Fields(x.options), []string{"-n", "200", "-w", "20", "10.77.0.1"})...))
			assert.Contains(t, s.Stdout, "| Test:         "+x.names)
			assert.Contains(t, c.Stdout, perftestRule+perftestHead+perftestRule)
			assert.Regexp(t, perftestRow, c.Stdout)
			assert.Contains(t, c.Stdout, "\nFinal:                   200 ")
			assert.Empty(t, c.Stderr)
		})
	}
}

// TestHardwareFirst: where there are RDMA devices and soft devices, two processes use an RDMA device, unless the settings
// choose another one.
func TestHardwareFirst(t *testing.T) {
	for devices, want := range map[string]string{"": "rc/rxe[01]:1", "rxe1": "rc/rxe1:1", "ve0": "rc/ve0:1"} {
		if testing.Short() && devices != "" {
			continue
		}
		t.Run("UCX_NET_DEVICES="+devices, func(t *testing.T) {
			provide(t, perftest)
			job := func(argv ...string) vm.Job {
				env := []string{"UCX_TLS=rc"}
				if devices != "" {
					env = append(env, "UCX_NET_DEVICES="+devices)
				}
				return vm.Job{Argv: append([]string{perftest.name, "-p", strconv.Itoa(toolPort)}, argv...), Env: env, Limit: 40 * time.Second}
			}
			_, c := runPair(t, job(), job("-t", "tag_lat", "-n", "100", "-X", "10.77.0.1"))
			assert.Regexp(t, "(?m)^Final:.* "+want+"$", c.Stdout)
		})
	}
}
