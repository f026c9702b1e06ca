//go:build linux

package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/uct"
)

// mostThreshold bounds the limits of an interface that count as thresholds.
const mostThreshold = 128 << 10

// datagramMost is the longest datagram of verbs.
const datagramMost = 4096

// columnPatience bounds one process. It takes a few seconds on an idle machine.
const columnPatience = 5 * time.Minute

// transportOf finds a transport.
func transportOf(t testing.TB, name string) uct.Component {
	t.Helper()
	for _, c := range transports.All() {
		if c.Name() == name {
			return c
		}
	}
	require.Fail(t, "no transport "+name)
	return nil
}

var (
	// thresholdNames are the settings with lengths where messages change their form.
	thresholdNames = regexp.MustCompile(`_THRESH$|_SEG_SIZE$|_MAX_INLINE$|^SOFT_MTU$`)
	lengthText     = regexp.MustCompile(`\b\d+[km]?\b`)
)

// settingThresholds are the thresholds in the settings of ucp and the transport. Where
// the default is auto, they follow "auto:" in the help.
func settingThresholds(t testing.TB, c column) (all []int64) {
	t.Helper()
	transport := c.transport
	if c.ofVerbs() {
		transport = "rc" // whose devices they use
	}
	for _, table := range append(transportOf(t, transport).Settings(), ucp.Settings()) {
		for _, row := range table.Settings {
			if !thresholdNames.MatchString(row.Name()) {
				continue
			}
			text := row.Default()
			if text == "auto" {
				_, text, _ = strings.Cut(row.Help(), "auto:")
			}
			found := len(all)
			for _, s := range lengthText.FindAllString(text, -1) {
				n, err := config.Size(0, config.Inf).Parse(s)
				require.NoError(t, err, row.Name())
				if n > 1 {
					all = append(all, int64(n))
				}
			}
			require.Greater(t, len(all), found, "%s has no length in %q", row.Name(), text)
		}
	}
	return all
}

// deaf is the handler of an interface that is only looked at.
type deaf struct{}

func (deaf) HandleAM([]byte, []uct.Desc) uint64 { return 0 }
func (deaf) HandleEvents([]uct.Event)           {}
func (deaf) HandlePending(ts []uct.Token) int   { return len(ts) }
func (deaf) HandleFailure(uct.Failure)          {}

// attributes opens an interface of the transport and returns its attributes.
func attributes(t testing.TB, transport, device string) (a uct.IfaceAttr) {
	t.Helper()
	c := transportOf(t, transport)
	domains, refused := c.Domains(nil)
	for _, info := range domains {
		d, err := c.OpenDomain(info, uct.DomainConfig{})
		require.NoError(t, err)
		ifaces, _ := d.Ifaces()
		for _, i := range ifaces {
			if name, _, _ := strings.Cut(i.Device, ":"); name != device {
				continue
			}
			f, err := d.OpenIface(i, uct.IfaceConfig{Handler: deaf{}, Worker: uct.UUID{1}})
			require.NoError(t, err)
			a = *f.Attr()
			require.NoError(t, f.Close())
		}
		require.NoError(t, d.Close())
	}
	require.NotZero(t, a.Ops, "no interface %s/%s, refused: %v", transport, device, refused)
	return a
}

// column is a transport of the matrix, and its device for tests that name one.
type column struct{ transport, device string }

// Columns of tests of verbs: those between two sides, and the one whose threads are in one process.
const (
	verbsColumn = "verbs"
	rateColumn  = "verbs_rate"
)

// ofVerbs reports whether the column has tests of verbs.
func (c column) ofVerbs() bool { return c.transport == verbsColumn || c.transport == rateColumn }

// has reports whether a test is in the column.
func (c column) has(row perf.Test) bool {
	return !row.Later && (row.API == perf.Verbs) == c.ofVerbs() && (row.Op == perf.OpSharedPut) == (c.transport == rateColumn)
}

// runs are the batch lines of every test at each threshold, one less and one more,
// as far as the interface carries the test and the length. Those of UCP send as a Thread, too.
func (c column) runs(t testing.TB) (lines []string) {
	t.Helper()
	var a uct.IfaceAttr
	thresholds := settingThresholds(t, c)
	if !c.ofVerbs() {
		a = attributes(t, c.transport, c.device)
		for _, l := range []uct.Limit{a.AM, a.Put, a.Get} {
			for _, n := range []int{l.Short, l.Bcopy, l.MaxZcopy} {
				if n > 1 && n < mostThreshold {
					thresholds = append(thresholds, int64(n))
				}
			}
		}
	}
	var sizes []int64
	for _, n := range thresholds {
		sizes = append(sizes, n-1, n, n+1)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	add := func(test string, n int64, options ...string) {
		args := append([]string{"-t", test, "-s", strconv.FormatInt(n, 10)}, options...)
		lines = append(lines, fmt.Sprintf("%s_%d %s", test, len(lines), strings.Join(args, " ")))
	}
	addThread := func(row perf.Test, n int64) { // self does not reach its worker from a Thread
		if row.API == perf.UCP && c.transport != "self" {
			add(row.Name, n, "--sharing", "dynamic")
		}
	}
	for _, row := range perf.Tests() {
		switch {
		case !c.has(row):
		case row.API == perf.UCT && row.Op.Atomic():
			kinds, kind := a.Fetch64, uct.AtomicAdd
			switch row.Op {
			case perf.OpAdd:
				kinds = a.Post64
			case perf.OpSwap:
				kind = uct.AtomicSwap
			case perf.OpCompareSwap:
				kind = uct.AtomicCompareSwap
			default: // FetchAdd
			}
			if kinds.Has(kind) {
				add(row.Name, 8, "-x", c.transport, "-d", c.device)
			}
		case row.Op.Atomic():
			for _, n := range []int64{4, 8} {
				if n == 8 || row.API == perf.UCP {
					add(row.Name, n)
				}
				addThread(row, n)
			}
		case row.API == perf.UCT:
			l, op := a.AM, uct.OpAMShort
			switch row.Op {
			case perf.OpPut:
				l, op = a.Put, uct.OpPutShort
			case perf.OpGet:
				l, op = a.Get, uct.OpGetShort
			default: // active messages
			}
			for form, most := range []int{l.Short, l.Bcopy, l.MaxZcopy} {
				most = min(most, mostThreshold)
				for _, n := range []int{most - 1, most} {
					if a.Ops.Has(op << form) {
						add(row.Name, int64(n), "-x", c.transport, "-d", c.device, "-D", []string{"short", "bcopy", "zcopy"}[form])
					}
				}
			}
		default:
			for _, n := range sizes {
				if row.Op != perf.OpDatagram || n <= datagramMost {
					add(row.Name, n)
				}
				addThread(row, n)
			}
		}
	}
	return lines
}

// TestPerftestThresholds runs each test at each length where messages change their
// form, over each transport, between two processes, and in make nightly within one, too.
func TestPerftestThresholds(t *testing.T) {
	for _, c := range []column{{"self", "memory0"}, {"shm", "memory"}, {"rc", "lo"}, {"ud", "lo"}, {verbsColumn, "lo"}, {rateColumn, "lo"}} {
		t.Run(c.transport, c.run)
	}
}

func (c column) run(t *testing.T) {
	lines := c.runs(t)
	batch := filepath.Join(t.TempDir(), "runs")
	require.NoError(t, os.WriteFile(batch, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	args := []string{"-q", "-v", "-f", "-n", "20", "-w", "2", "-b", batch}
	tool := built(t, "ucx_perftest")
	if !c.ofVerbs() {
		t.Setenv("UCX_TLS", c.transport)
	}
	check := func(t *testing.T, p *suitetest.Command) {
		t.Helper()
		code := p.End(columnPatience)
		require.Empty(t, p.Err.String())
		require.Zero(t, code)
		rows := strings.Split(strings.TrimSpace(p.Out.String()), "\n")[1:]
		require.Len(t, rows, len(lines))
		for i, row := range rows {
			name, _, _ := strings.Cut(lines[i], " ")
			require.Regexp(t, "^"+name+",20(,[0-9.]+){7}$", row)
		}
	}
	alone := c.transport == "self" || c.transport == rateColumn // one process
	if alone || suitetest.All() {
		t.Run("loopback", func(t *testing.T) {
			check(t, run(t, tool, append([]string{"-l"}, args...)...))
		})
	}
	if alone {
		return
	}
	t.Run("two processes", func(t *testing.T) {
		port := suitetest.FreePort(t)
		server := run(t, tool, "-q", "-p", port)
		listens(t, port)
		check(t, run(t, tool, append([]string{"localhost", "-p", port}, args...)...))
		require.Zero(t, server.End(patience), "server: %s", &server.Err)
	})
}
