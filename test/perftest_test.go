//go:build linux

package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// measure runs a tool as client of a server with these options, and gives what
// the client prints; both end well.
func measure(t *testing.T, tool string, server []string, args ...string) string {
	t.Helper()
	port := suitetest.FreePort(t)
	s := run(t, tool, append([]string{"-p", port}, server...)...)
	listens(t, port)
	c := run(t, tool, append([]string{"localhost", "-p", port}, args...)...)
	code := c.End(patience)
	require.Zero(t, code, "client: %s\nserver: %s", &c.Err, &s.Err)
	require.Zero(t, s.End(patience), "server: %s", &s.Err)
	if tool == built(t, "ucx_perftest") {
		require.Contains(t, s.Out.String(), "Waiting for connection...\nAccepted connection from ")
		require.Empty(t, c.Err.String())
	}
	return c.Out.String()
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

// TestCompareUCX runs every line of internal/compareucx through both tools. It takes some minutes.
func TestCompareUCX(t *testing.T) {
	if os.Getenv("GOUCX_TEST_LONG") == "" {
		t.Skip("some minutes: needs GOUCX_TEST_LONG")
	}
	if _, err := exec.LookPath("ucx_perftest"); err != nil {
		t.Skipf("UCX's tool is not installed: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "./internal/compareucx", "-ours", built(t, "ucx_perftest"))
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
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
