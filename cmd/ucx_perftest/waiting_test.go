package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sumRow is the last row of several threads: latency, bandwidth and rate of all.
var sumRow = regexp.MustCompile(`(?m)^Final: +200 +[0-9.]+ +[0-9.]+ +[0-9]+$`)

// Threads over two processes, each with a worker and an endpoint of its own.
func TestThreadsOverTwoProcesses(t *testing.T) {
	for _, line := range []string{
		"-t tag_lat -T 2 -M multi", "-t tag_lat -T 2", "-t tag_bw -T 3 -M serialized", "-t ucp_put_lat -T 2 -E sleep",
		"-t ucp_am_lat -T 2 -M multi -H 8", "-t ucp_am_bw -T 2 -M multi", "-t tag_sync_lat -T 2 -U", "-t ucp_fadd -T 2",
	} {
		t.Run(line, func(t *testing.T) {
			_, c := both(t, nil, append([]string{"-q", "-n", "200", "-w", "10"}, strings.Fields(line)...))
			assert.Regexp(t, sumRow, c.Out.String())
			assert.Empty(t, c.Err.String())
		})
	}
}

// A batch line takes every option of a test; rows of threads lack columns.
//
// Source: what UCX 1.13's tool prints for such a file.
func TestBatchOfOptions(t *testing.T) {
	lines := file(t, "types", "two -t tag_lat -T 2 -M multi\nasleep -t tag_lat -E sleep\nun -t tag_bw -U\nam -t ucp_am_lat -H 16 -y\nsync -t tag_sync_bw\n")
	out, _, err := command("-l", "-q", "-n", "200", "-v", "-f", "-b", lines)
	require.NoError(t, err)
	const all = `(,[0-9.]+){7}\n`
	assert.Regexp(t, `\ntwo,200(,[0-9.]+){3}\nasleep,200`+all+`un,200`+all+`am,200`+all+`sync,200`+all+`$`, out)
}

// Sleeping without spinning, and the default: a test of each kind.
func TestSleepOverTwoProcesses(t *testing.T) {
	t.Setenv("UCX_SPIN_TIME", "0")
	for _, line := range []string{"-t tag_lat", "-t tag_bw -s 20000", "-t tag_sync_lat", "-t ucp_am_lat", "-t ucp_put_lat", "-t ucp_get"} {
		t.Run(line, func(t *testing.T) {
			_, c := both(t, nil, append([]string{"-q", "-n", "300", "-E", "sleep"}, strings.Fields(line)...))
			assert.Regexp(t, finalRow, c.Out.String())
		})
	}
}
