package main

import (
	"bytes"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/perf"
)

// Every way of a length is measured between two processes, and named.
func TestCalibrate(t *testing.T) {
	t.Setenv(commandEnv, "1")
	defer func(n int) { rounds = n }(rounds)
	rounds = 2
	out, diagnostics, err := command("--calibrate", "shm", "-t", "tag_lat", "-s", "1024,64k", "-n", "20")
	require.NoError(t, err)
	assert.Empty(t, diagnostics)
	number := ` +\d+\.\d{3}`
	for _, want := range []string{
		`\ntag_lat, heap memory: microseconds\n     bytes     eager      ring       cma     cma-1   default  default/best\n      1024` + strings.Repeat(number, 5) + `  \d+\.\d\d [a-z1-]+( <)?\n     65536` + strings.Repeat(number, 5) + "  ",
		`\ntag_lat, host memory: microseconds\n     bytes     eager      ring       cma     cma-1    mapped  mapped-1   default  default/best\n      1024` + strings.Repeat(number, 7) + "  ",
		`\nShortest length .*\n    tag_lat, heap memory     (1024|65536|none of these)\n    tag_lat, host memory     (1024|65536|none of these)\n`,
		`\n    UCX_SHM_FETCH_THRESH           (1K|64K|inf) +\d+\.\d\d   now auto \(default\)\n    UCX_SHM_FETCH_MAPPED_THRESH    (1K|64K|inf) +\d+\.\d\d   now 2K \(default\)\n`,
		`\nThe default is more than 10 % behind the best fixed setting at\n    (none of these|tag_lat, )`,
	} {
		assert.Regexp(t, want, out)
	}

	t.Setenv("UCX_SHM_FETCH_THRESH", "5000")
	out, _, err = command("--calibrate", "shm", "-t", "ucp_am_bw", "-m", "heap", "-s", "70000", "-n", "20", "-v")
	require.NoError(t, err)
	assert.Regexp(t, `^test,memory,size,way,usec,of_default\n(ucp_am_bw,heap,70000,(eager|ring|cma|cma-1|default),\d+\.\d{3},\d+\.\d{3}\n){5}$`, out)
	out, _, err = command("--calibrate", "shm", "-t", "tag_bw", "-m", "heap", "-s", "1k", "-n", "10", "-f")
	require.NoError(t, err)
	assert.Regexp(t, `^\nShortest length`, out)
	assert.Contains(t, out, "now 5000 (environment UCX_SHM_FETCH_THRESH)")
}

// What is measured without -s: powers of two, and the lengths around the thresholds in effect.
func TestCalibratePoints(t *testing.T) {
	t.Setenv("UCX_SHM_FETCH_THRESH", "5000")
	o := newOptions()
	require.NoError(t, o.parse([]string{"--calibrate", "shm", "-t", "tag_lat", "-m", "heap"}))
	set, _, _, err := settings(&bytes.Buffer{})
	require.NoError(t, err)
	points, err := o.points(set, &bytes.Buffer{})
	require.NoError(t, err)
	var sizes []int64
	for _, p := range points {
		sizes = append(sizes, p.params.Size())
		for _, w := range p.ways {
			if w.rndv {
				n, err := parseLength(w.settings["rndv_thresh"])
				require.NoError(t, err)
				assert.Equal(t, p.params.Size()-1, n)
			}
		}
	}
	assert.Equal(t, []int64{
		1 << 10, 2 << 10, 2<<10 + 1, 4 << 10, 5000, 5001, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 64<<10 + 1,
		128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20,
	}, sizes)
}

func TestCalibrateRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"--calibrate rc":                   `--calibrate "rc": not supported: of goucx's transports only shm has several ways to copy a message`,
		"--calibrate self":                 `only shm has several ways`,
		"--calibrate tcp":                  `--calibrate "tcp": known is shm`,
		"--calibrate shm 127.0.0.1":        "does not take a server's host name",
		"--calibrate shm -l":               "does not take -l",
		"--calibrate shm --json":           "does not take --json",
		"--calibrate shm -b x":             "does not take -b",
		"--calibrate shm --plot x.svg":     "does not take --plot",
		"--calibrate shm --pcap x":         "does not take --pcap",
		"--calibrate shm --percentiles":    "does not take --percentiles",
		"--calibrate shm -O 4":             "does not take --outstanding; of the options of a test it takes -t -s -m -n -w",
		"--calibrate shm -t put_bw":        "measures tag_lat tag_bw ucp_am_lat ucp_am_bw, not put_bw",
		"--calibrate shm -s 1023":          "length 1023 is out of range: 1024-4194304",
		"--calibrate shm -s 4194305":       "length 4194305 is out of range",
		"--calibrate shm -n 0":             "-n 0 has no end",
		"--calibrate shm -n -5":            "number of iterations -5 is out of range",
		"--calibrate shm -c 0":             "-c takes two processors, one for each process",
		"--calibrate shm -c 900,901 -s 1k": "-c 900: ",
	} {
		out, _, err := command(strings.Fields(line)...)
		require.ErrorContains(t, err, want, line)
		assert.Empty(t, out, line)
		if !strings.Contains(line, "900") {
			assert.Equal(t, 2, exitCode(err), line)
		}
	}
}

// An interruption prints what was measured, and ends both processes.
func TestCalibrateInterrupted(t *testing.T) {
	c := start(t, "--calibrate", "shm", "-t", "tag_lat", "-m", "host", "-n", "50")
	c.Says("      1024 ")
	require.NoError(t, c.Cmd.Process.Signal(syscall.SIGINT))
	c.End(patience)
	assert.True(t, c.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled())
	assert.Contains(t, c.Out.String(), "\nShortest length")
}

// The peer of a process that is killed ends too.
func TestCalibrateKilled(t *testing.T) {
	c := start(t, "--calibrate", "shm", "-t", "tag_lat", "-m", "host", "-n", "50")
	c.Says("      1024 ")
	require.NoError(t, c.Cmd.Process.Kill())
	c.End(patience) // its output ends when the peer, which has the same stderr, has ended
}

// made returns a point with these times in each of two rounds, of which the second is twice as slow.
func made(test string, heap bool, n int64, times map[string]float64) *point {
	p := &point{params: perf.Params{Test: test, Sizes: []int64{n}, SendHeap: heap}, memory: map[bool]string{true: "heap", false: "host"}[heap]}
	for _, w := range ways {
		if ns, ok := times[w.name]; ok {
			p.ways, p.times = append(p.ways, w), append(p.times, []float64{ns, 2 * ns})
		}
	}
	return p
}

// The recommended values are those with which the worst message is least behind.
func TestRecommend(t *testing.T) {
	var points []*point
	for _, x := range []struct {
		n                     int64
		eager, fetch, fetchBW float64
	}{{1024, 1, 3, 3}, {2048, 2, 3, 2.5}, {4096, 4, 3, 4}, {8192, 8, 3, 4}} {
		points = append(points,
			made("tag_lat", true, x.n, map[string]float64{"eager": x.eager, "ring": x.eager + 1, "cma": x.fetch, "cma-1": x.fetch + 1, defaultWay: 3.3}),
			made("tag_bw", true, x.n, map[string]float64{"eager": x.eager, "ring": x.eager + 1, "cma": x.fetchBW, "cma-1": x.fetchBW + 1, defaultWay: x.eager}))
	}
	rs := recommend(points)
	require.Len(t, rs, 3)
	assert.Equal(t, recommendation{threshHeap, "2K", 1}, rs[0])
	assert.Equal(t, recommendation{singleCopy, "auto", 1}, rs[1])
	assert.Equal(t, recommendation{cooperative, "y", 1}, rs[2])
	lat := []*point{points[0], points[2], points[4], points[6]}
	assert.EqualValues(t, 4096, crossing(lat))
	best, ratio := points[0].best()
	assert.Equal(t, "eager", best)
	assert.InDelta(t, 3.3, ratio, 1e-9)
	best, ratio = points[7].best()
	assert.Equal(t, "cma", best)
	assert.InDelta(t, 2, ratio, 1e-9)
	assert.True(t, math.IsInf(points[0].ratio("mapped", "eager"), 1), "not measured")

	mapped := made("tag_lat", false, 4096, map[string]float64{"eager": 4, "ring": 5, "cma": 2, "cma-1": 2, "mapped": 3, "mapped-1": 3, defaultWay: 3})
	rs = recommend([]*point{mapped})
	assert.Equal(t, recommendation{threshMapped, "inf", 2}, recommendation{rs[0].setting, "inf", 2})
	assert.Equal(t, recommendation{singleCopy, "cma", 1}, rs[1])
}
