//go:build linux

package test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// finalRow is a last row of the table: eight numbers.
var finalRow = regexp.MustCompile(`(?m)^Final:( +[0-9.]+){8}$`)

// measure runs a tool as client of a server with these options, and gives what
// the client prints; both end well.
func measure(t *testing.T, tool string, server []string, args ...string) string {
	t.Helper()
	port := freePort(t)
	s := run(t, tool, append([]string{"-p", port}, server...)...)
	listens(t, port)
	c := run(t, tool, append([]string{"localhost", "-p", port}, args...)...)
	code := c.end(patience)
	require.Zero(t, code, "client: %s\nserver: %s", &c.err, &s.err)
	require.Zero(t, s.end(patience), "server: %s", &s.err)
	if tool == built(t, "ucx_perftest") {
		require.Contains(t, s.out.String(), "Waiting for connection...\nAccepted connection from ")
		require.Empty(t, c.err.String())
	}
	return c.out.String()
}

func TestPerftest(t *testing.T) {
	for _, line := range []string{
		"-t tag_lat", "-t tag_bw -s 1024", "-t ucp_put_lat", "-t ucp_put_bw", "-t ucp_get", "-t ucp_fadd", "-t ucp_add",
		"-t am_lat -x mm -d memory", "-t put_bw -x posix -d memory", "-t cswap -x sm -d memory",
	} {
		t.Run(line, func(t *testing.T) {
			out := measure(t, built(t, "ucx_perftest"), nil, append(strings.Fields(line), "-n", "500", "-q")...)
			assert.Regexp(t, finalRow, out)
		})
	}
	requireNoTrace(t)
}

// TestPerftestRefuses: what cannot be done is named, on stderr, and the exit code
// is not 0.
func TestPerftestRefuses(t *testing.T) {
	tool := built(t, "ucx_perftest")
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	taken := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"localhost", 2, "missing test name"},
		{"localhost -t tag_lta", 2, "tag_lta"},
		{"localhost -t stream_lat", 2, "not supported yet"},
		{"-l -t am_lat -x rdma -d memory", 1, "rdma"},
		{"-l -t am_lat -x mm -d mlx5_0", 1, "mlx5_0"},
		{"-l -t tag_lat -s -1", 2, "-1"},
		{"-l -t tag_lat -s 99999999999999", 2, "99999999999999"},
		{"-l -t tag_lat -s 99999999999999999999", 2, "99999999999999999999"},
		{"-l -t tag_lat -s eight", 2, "eight"},
		{"-l -t ucp_fadd -s 16", 2, "4 or 8"},
		{"-l -t am_lat -x mm -s 1000000", 1, "1000000"},
		{"-l -t tag_bw -O -1", 2, "-1"},
		{"-l -t tag_lat -n x", 2, "x"},
		{"-l -t tag_lat -c 4000", 1, "4000"},
		{"-l -t tag_lat -W", 2, "-W"},
		{"-l -t tag_lat --frobnicate", 2, "frobnicate"},
		{"-l -b /no/such/batch", 1, "/no/such/batch"},
		{"-p 99999", 2, "99999"},
		{"-p " + taken, 1, "port " + taken},
		{"localhost -t tag_lat --wait 200ms -p " + freePort(t), 1, "no server came within 200ms"},
		{"no-such-host.invalid -t tag_lat --wait 2s", 1, "no-such-host.invalid"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			c := run(t, tool, strings.Fields(tc.args)...)
			code := c.end(patience)
			assert.Contains(t, c.err.String(), tc.want)
			assert.NotZero(t, code)
			assert.Equal(t, tc.code, code, "%s", &c.err)
			assert.NotRegexp(t, finalRow, c.out.String())
			t.Log(strings.TrimSpace(c.err.String()))
		})
	}
	t.Run("an unknown transport in UCX_TLS", func(t *testing.T) {
		t.Setenv("UCX_TLS", "warp")
		c := run(t, tool, "-l", "-t", "tag_lat")
		assert.NotZero(t, c.end(patience))
		assert.Contains(t, c.err.String(), "warp")
	})
}

// TestPerftestKilled: whichever side is killed in the middle of a run, the other
// ends with an error soon.
func TestPerftestKilled(t *testing.T) {
	for _, test := range []string{"tag_lat", "tag_bw", "ucp_put_bw"} {
		for _, victim := range []string{"server", "client"} {
			t.Run(test+" "+victim, func(t *testing.T) {
				port := freePort(t)
				s := run(t, built(t, "ucx_perftest"), "-p", port)
				s.says("Waiting for connection")
				c := run(t, built(t, "ucx_perftest"), "localhost", "-p", port, "-q", "-t", test, "-n", "0")
				c.says("[thread 0]") // a second has passed
				dead, alive := s, c
				if victim == "client" {
					dead, alive = c, s
				}
				died := time.Now()
				require.NoError(t, dead.cmd.Process.Kill())
				code := alive.end(patience)
				took := time.Since(died)
				assert.Equal(t, 1, code)
				assert.NotEmpty(t, alive.err.String())
				t.Logf("%.1f ms later: %s", float64(took.Microseconds())/1000, strings.TrimSpace(alive.err.String()))
				assert.Less(t, took, 5*time.Second)
			})
		}
	}
	requireNoTrace(t)
}

// TestPerftestBatch: batch files of UCX's kind. Where UCX's tool is installed it
// runs them too, and the rows and columns are the same.
func TestPerftestBatch(t *testing.T) {
	args := []string{"-b", "testdata/types", "-b", "testdata/sizes", "-v", "-f", "-q", "-w", "10"}
	out := measure(t, built(t, "ucx_perftest"), nil, args...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 1+batchLines(t, "types")*batchLines(t, "sizes"))
	require.Equal(t, "types,sizes,iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr", lines[0])
	for _, l := range lines[1:] {
		require.Regexp(t, `^[a-z_0-9]+,[0-9]+,[0-9]+(,[0-9.]+){7}$`, l)
	}
	// UCX's server needs the files too; ours may have them.
	require.Equal(t, firstColumns(out), firstColumns(measure(t, built(t, "ucx_perftest"), args, args...)))
	waits := measure(t, built(t, "ucx_perftest"), nil, "-b", "testdata/waits", "-v", "-f", "-q", "-w", "10", "-n", "100")
	assert.Regexp(t, strings.Repeat(`\n[a-z_]+,100(,[0-9.]+){7}`, batchLines(t, "waits"))+`\n$`, waits)
	t.Run("as UCX's", func(t *testing.T) {
		ucx, err := exec.LookPath("ucx_perftest")
		if err != nil {
			t.Skipf("UCX's tool is not installed: %v", err)
		}
		t.Setenv("UCX_TLS", "sm,self")
		require.Equal(t, firstColumns(measure(t, ucx, args, args...)), firstColumns(out))
	})
}

func batchLines(t *testing.T, name string) (n int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if s := strings.TrimSpace(line); s != "" && s[0] != '#' {
			n++
		}
	}
	return n
}

// firstColumns are the names and the iterations of each row, and the title.
func firstColumns(csv string) (rows []string) {
	for line := range strings.Lines(csv) {
		line = strings.ReplaceAll(strings.TrimSpace(line), " ", "") // UCX pads small numbers
		if f := strings.Split(line, ","); len(f) == 10 {
			rows = append(rows, strings.Join(f[:3], ","))
		}
	}
	return rows
}

// TestPerftestLikeUCX: with each option that changes what a run is, both tools
// print the same columns and the same number of iterations.
func TestPerftestLikeUCX(t *testing.T) {
	ucx, err := exec.LookPath("ucx_perftest")
	if err != nil {
		t.Skipf("UCX's tool is not installed: %v", err)
	}
	for _, line := range []string{
		"-t tag_lat -U", "-t tag_bw -U", "-t tag_lat -E sleep", "-t ucp_am_lat -E sleep", "-t tag_lat -T 2 -M multi", "-t tag_bw -T 2 -M serialized",
		"-t tag_sync_lat -s 20000", "-t tag_sync_bw", "-t ucp_am_lat -H 16 -s 0", "-t ucp_am_bw -H 64 -s 100000", "-t tag_lat -C -R 99",
	} {
		t.Run(line, func(t *testing.T) {
			t.Setenv("UCX_TLS", "sm,self")
			args := append(strings.Fields(line), "-v", "-f", "-n", "100", "-w", "10")
			theirs := strings.Split(strings.TrimSpace(measure(t, ucx, nil, args...)), "\n")
			ours := strings.Split(strings.TrimSpace(measure(t, built(t, "ucx_perftest"), nil, append(args, "-q")...)), "\n")
			require.Len(t, ours, 2)
			require.Len(t, theirs, 2)
			assert.Equal(t, theirs[0], ours[0])
			a, b := strings.Split(theirs[1], ","), strings.Split(ours[1], ",")
			assert.Len(t, b, len(a), "%s and %s", theirs[1], ours[1])
			assert.Equal(t, strings.TrimSpace(a[0]), b[0], "iterations")
		})
	}
}

// TestPerftestMeetsUCX: UCX's own tool at the other end is told apart.
func TestPerftestMeetsUCX(t *testing.T) {
	ucx, err := exec.LookPath("ucx_perftest")
	if err != nil {
		t.Skipf("UCX's tool is not installed: %v", err)
	}
	const name = "UCX's own ucx_perftest"
	tool := built(t, "ucx_perftest")
	t.Run("as client", func(t *testing.T) {
		port := freePort(t)
		s := run(t, tool, "-p", port)
		s.says("Waiting for connection")
		run(t, ucx, "localhost", "-p", port, "-t", "tag_lat", "-n", "10")
		require.Equal(t, 1, s.end(patience))
		require.Contains(t, s.err.String(), name)
	})
	t.Run("as server", func(t *testing.T) {
		port := freePort(t)
		run(t, ucx, "-p", port)
		listens(t, port)
		c := run(t, tool, "localhost", "-p", port, "-t", "tag_lat", "-n", "10")
		require.Equal(t, 1, c.end(patience))
		require.Contains(t, c.err.String(), name)
	})
}

// TestInfo: each page of ucx_info has something to say.
func TestInfo(t *testing.T) {
	for args, want := range map[string]string{
		"-v": "version", "-d": "shm", "-c": "UCX_TLS", "-c -f": "UCX_TLS", "-p -u t": "shm", "-w -u t": "worker",
		"-e -u t": "tag_send", "--why": "refused",
	} {
		t.Run(args, func(t *testing.T) {
			c := run(t, built(t, "ucx_info"), strings.Fields(args)...)
			assert.Zero(t, c.end(patience), "%s", &c.err)
			assert.Contains(t, strings.ToLower(c.out.String()), strings.ToLower(want))
			assert.NotEmpty(t, c.out.String())
		})
	}
}
