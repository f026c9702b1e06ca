package rxe

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/test/rxe/vm"
)

var goodputFile = flag.String("rxe.goodput", "", "store the table of goodput in this file, and require its ratios")

// Bandwidth tests whose goodput is compared: bytes of a message and number of messages.
const (
	goodputSize  = 65536
	goodputCount = 600
	goodputRuns  = 9 // the fastest counts: the machine is emulated and shares its host
)

const goodputIntroduction = `# Goodput against the kernel's Soft-RoCE

The software RNIC in one network namespace and the kernel's rxe in the other, beside two rxe devices on the same path, in the emulated
machine of test/rxe: the ratios tell something, the rates nothing. %d messages of %d bytes, IPv6, MTU 4096; of %d runs
the fastest counts. At least 0.8 of kernel to kernel is wanted without loss, 0.5 with it.

    go test ./test/rxe -run TestGoodput -rxe.goodput docs/perf/rxe-goodput.md

%s`

// flow is a direction of the comparison. Client sends to server.
type flow struct {
	name           string
	client, server vm.Job
}

// flows returns the directions: between a soft device in namespace peer and rxe0, and between rxe1 and
// rxe0. All packets cross the link of rxe0, and are of IPv6, whose header has all that the ICRC covers: of
// IPv4's, a soft device has to search for the identification, which takes an emulated processor long.
func flows(program string) []flow {
	args := []string{"-s", strconv.Itoa(goodputSize), "-n", strconv.Itoa(goodputCount), "-t", "16", "-u", "18"}
	job := func(peer bool, argv ...string) vm.Job {
		return vm.Job{Argv: argv, Peer: peer, Limit: exchangeLimit}
	}
	soft := func(server ...string) vm.Job {
		argv := append([]string{"rdmapeer", "-limit", "35s", "-addr", "fd77::2"}, args...)
		return job(true, append(append(argv, program), server...)...)
	}
	rxe := func(device string, server ...string) vm.Job {
		return job(false, append(append([]string{program, "-F", "-d", device, "-x", "2"}, args...), server...)...)
	}
	return []flow{
		{"soft to kernel", soft("10.77.0.1"), rxe("rxe0")},
		{"kernel to soft", rxe("rxe0", "10.77.0.2"), soft()},
		{"kernel to kernel", rxe("rxe1", "10.77.0.1"), rxe("rxe0")},
	}
}

// Rates as the programs print them: rdmapeer in 10^6 bytes, perftest in 2^20 bytes a second, its average
// in the fourth column.
var (
	rateOfPeer     = regexp.MustCompile(`([0-9.]+) MB/s`)
	rateOfPerftest = regexp.MustCompile(`(?m)^ *` + strconv.Itoa(goodputSize) + ` +\d+ +[0-9.]+ +([0-9.]+)`)
)

// rate returns the goodput that the client printed, in 10^6 bytes a second.
func rate(t *testing.T, out string) float64 {
	t.Helper()
	m, unit := rateOfPeer.FindStringSubmatch(out), 1.0
	if m == nil {
		m, unit = rateOfPerftest.FindStringSubmatch(out), 1.048576
	}
	require.NotNil(t, m, "no rate in %q", out)
	v, err := strconv.ParseFloat(m[1], 64)
	require.NoError(t, err)
	return v * unit
}

// setLoss makes the link of rxe0 drop this percentage of packets, each way.
func setLoss(t *testing.T, percent float64) {
	t.Helper()
	qdisc := func(device string) []string {
		if percent == 0 {
			return []string{"tc", "qdisc", "del", "dev", device, "root"}
		}
		return []string{"tc", "qdisc", "replace", "dev", device, "root", "netem", "limit", "10000", "loss", fmt.Sprintf("%v%%", percent)}
	}
	run(t, vm.Job{Argv: qdisc("ve0")})
	run(t, vm.Job{Argv: qdisc("pv0"), Peer: true})
}

// TestGoodput compares the goodput between a soft device and the kernel's driver with that between two of the
// kernel's, on one path, without loss and with it. It prints a table for docs/perf. The machine is
// emulated: the ratios tell something, the rates nothing.
func TestGoodput(t *testing.T) {
	if !suitetest.All() && *goodputFile == "" {
		return // it takes minutes, and without the flag it checks nothing
	}
	defer spent("goodput", time.Now())
	provide(t, rdmapeer)
	var table strings.Builder
	fmt.Fprintf(&table, "| program | loss | soft to kernel | kernel to soft | kernel to kernel | ratios |\n|---|---|---|---|---|---|\n")
	for _, loss := range []float64{0, 0.5} {
		if loss > 0 {
			setLoss(t, loss)
			defer setLoss(t, 0)
		}
		for _, program := range []string{"ib_send_bw", "ib_write_bw"} {
			var rates [3]float64
			for i, f := range flows(program) {
				for range goodputRuns {
					_, c := runPair(t, f.server, f.client)
					rates[i] = max(rates[i], rate(t, c.Stdout))
				}
			}
			first, second := rates[0]/rates[2], rates[1]/rates[2]
			fmt.Fprintf(&table, "| `%s` | %v %% | %.1f MB/s | %.1f MB/s | %.1f MB/s | %.2f, %.2f |\n",
				program, loss, rates[0], rates[1], rates[2], first, second)
			if least := map[bool]float64{false: 0.8, true: 0.5}[loss > 0]; *goodputFile != "" {
				assert.GreaterOrEqual(t, min(first, second), least, "%s, loss %v %%", program, loss)
			}
		}
	}
	t.Logf("goodput, %d messages of %d bytes\n%s", goodputCount, goodputSize, &table)
	if *goodputFile != "" {
		text := fmt.Sprintf(goodputIntroduction, goodputCount, goodputSize, goodputRuns, &table)
		require.NoError(t, os.WriteFile(*goodputFile, []byte(text), 0o644))
	}
}
