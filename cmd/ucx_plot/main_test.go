package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/perf/report"
)

// Real results of two processes: the batch of each file has tag_lat of four sizes, tag_lat -C of two,
// tag_bw of three and one of two threads.
var (
	shm = filepath.Join("testdata", "shm.json")
	rc  = filepath.Join("testdata", "rc.json")
)

// svg is what a test sees of a picture.
type svg struct {
	texts []string
	dots  int // circles, one for each result and one for each line in a legend
}

func parse(t *testing.T, picture []byte) svg {
	t.Helper()
	var s svg
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return s
		}
		require.NoError(t, err)
		e, ok := token.(xml.StartElement)
		switch {
		case ok && e.Name.Local == "text":
			var text string
			require.NoError(t, d.DecodeElement(&text, &e))
			s.texts = append(s.texts, text)
		case ok && e.Name.Local == "path":
			for _, a := range e.Attr {
				if a.Name.Local == "d" && strings.Contains(a.Value, "A") { // an arc
					s.dots++
				}
			}
		}
	}
}

// plotted runs the command, whose picture goes to stdout.
func plotted(t *testing.T, stdin string, args ...string) svg {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(args, strings.NewReader(stdin), &out))
	return parse(t, out.Bytes())
}

// lines returns the lines of a file that contain all words.
func lines(t *testing.T, file string, words ...string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var found strings.Builder
next:
	for line := range strings.Lines(string(text)) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		found.WriteString(line)
	}
	require.NotEmpty(t, found.String())
	return found.String()
}

// Latency, bandwidth and percentiles each have a chart with a line for each series.
func TestCharts(t *testing.T) {
	s := plotted(t, "", "-t", "a <title>", shm)
	for _, want := range []string{
		"a <title>", "latency over message size", "bandwidth over message size", "percentiles over message size",
		"latency (us)", "bandwidth (MiB/s)", "message size (bytes)", "p50", "p99", "p99.9", "max", "0", "4K", "64K",
		"tag_lat shm/memory", "tag_lat shm/memory wildcard=true", "tag_bw shm/memory thread_count=1 threads=single", "tag_bw shm/memory thread_count=2 threads=multi",
	} {
		assert.Contains(t, s.texts, want)
	}
	// Six latencies, four percentiles of each, and of the bandwidths three and the sum of two threads.
	assert.Equal(t, 6+6*4+4+3*2, s.dots)
}

// -c chooses charts, for tests of any kind.
func TestChosenCharts(t *testing.T) {
	s := plotted(t, "", "-c", "rate,bandwidth", shm)
	assert.Contains(t, s.texts, "rate over message size")
	assert.Contains(t, s.texts, "messages/s")
	assert.NotContains(t, s.texts, "percentiles over message size")
	assert.Equal(t, 2*(6+4)-1+2*4, s.dots, "a message of no bytes has no bandwidth")
}

// Results of one size have their percentiles along the axis.
func TestOneSize(t *testing.T) {
	s := plotted(t, lines(t, shm, `"lat_8"`)+lines(t, rc, `"lat_8"`))
	assert.Contains(t, s.texts, "percentiles")
	assert.NotContains(t, s.texts, "percentiles over message size")
	assert.Contains(t, s.texts, "tag_lat shm/memory")
	assert.Equal(t, 2+2*4+2*2, s.dots)
}

// Two files have lines of their own, whatever they have in common.
func TestFiles(t *testing.T) {
	again := filepath.Join(t.TempDir(), "again.json")
	require.NoError(t, os.WriteFile(again, []byte(lines(t, shm, `"lat_`)), 0o644))
	s := plotted(t, lines(t, shm, `"lat_`), "-c", "latency", "-", again)
	assert.Contains(t, s.texts, "stdin tag_lat shm/memory")
	assert.Contains(t, s.texts, again+" tag_lat shm/memory")
	assert.Equal(t, 8+2, s.dots)
}

// The points of a line are the results, in the order of their sizes.
func TestPoints(t *testing.T) {
	rows, err := report.ReadJSON(strings.NewReader(lines(t, shm, `"lat_64k"`) + lines(t, shm, `"lat_0"`) + lines(t, shm, `"lat_4k"`)))
	require.NoError(t, err)
	var results []result
	for _, r := range rows {
		results = append(results, result{JSONRow: r})
	}
	all, err := group(results)
	require.NoError(t, err)
	require.Len(t, all, 1)
	points := all[0].points(charts[0].value)
	require.Len(t, points, 3)
	for i, want := range []struct{ x, y float64 }{
		{-1, rows[1].LatencyUsec.Overall}, {12, rows[2].LatencyUsec.Overall}, {16, rows[0].LatencyUsec.Overall},
	} {
		assert.Equal(t, want.x, points[i].X)
		assert.Equal(t, want.y, points[i].Y)
	}
}

// What cannot be drawn on a logarithmic axis is left out, and the rest drawn.
func TestNothingMeasured(t *testing.T) {
	const zero = `{"test":"tag_bw","final":true,"result":{"size":0,"params":{"test":"tag_bw","sizes":[0]}}}` + "\n"
	assert.Equal(t, 1, plotted(t, zero).dots)
	assert.Equal(t, 3+1+1, plotted(t, zero+lines(t, shm, `"bw_`)).dots)
}

func TestRefused(t *testing.T) {
	const row = `{"test":"tag_lat","final":false}` + "\n"
	file := filepath.Join(t.TempDir(), "a.svg")
	require.NoError(t, os.WriteFile(file, []byte("before"), 0o644))
	for name, c := range map[string]struct {
		stdin string
		args  []string
		usage bool
		want  string
	}{
		"empty":       {"", nil, false, "the input has no final result of ucx_perftest --json"},
		"no result":   {row, nil, false, "the input has no final result"},
		"not JSON":    {row + "| Test |\n", nil, false, "stdin: line 2 is no result of ucx_perftest --json"},
		"test":        {`{"test":"x","result":{}}`, nil, false, `unknown test "x"`},
		"chart":       {row, []string{"-c", "x"}, true, "-c x: there is no such chart; known are latency bandwidth rate percentiles"},
		"no file":     {row, []string{"none.json"}, false, "none.json: open none.json"},
		"form":        {row, []string{"-o", "a.png"}, true, "-o a.png: ucx_plot writes SVG"},
		"option":      {row, []string{"-z"}, true, "unknown shorthand flag"},
		"same output": {row, []string{"-o", file}, false, "no final result"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(c.args, strings.NewReader(c.stdin), &out)
			require.ErrorContains(t, err, c.want)
			_, usage := errors.AsType[usageError](err)
			assert.Equal(t, c.usage, usage)
			assert.Empty(t, out.String())
		})
	}
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "before", string(kept))
}

func TestHelp(t *testing.T) {
	for _, arg := range []string{"-h", "--version"} {
		var out bytes.Buffer
		require.NoError(t, run([]string{arg}, nil, &out))
		assert.Contains(t, out.String(), "ucx_plot")
	}
}

// ucx_perftest --plot finds the command beside itself and draws what it has measured.
func TestWithPerftest(t *testing.T) {
	dir := t.TempDir()
	for folder, pkg := range map[string]string{filepath.Join("..", ".."): "./cmd/ucx_perftest", ".": "."} {
		build := exec.Command("go", "build", "-C", folder, "-o", dir+string(filepath.Separator), pkg)
		text, err := build.CombinedOutput()
		require.NoError(t, err, "%s", text)
	}
	batch := filepath.Join(dir, "batch")
	require.NoError(t, os.WriteFile(batch, []byte("a -t tag_lat -s 8\nb -t tag_lat -s 64\nc -t tag_bw -s 64\n"), 0o644))
	file := filepath.Join(dir, "a.svg")
	perftest := exec.Command(filepath.Join(dir, "ucx_perftest"), "-l", "-q", "-n", "500", "-b", batch, "--plot", file)
	perftest.Env = append(os.Environ(), "UCX_TLS=self")
	text, err := perftest.CombinedOutput()
	require.NoError(t, err, "%s", text)
	picture, err := os.ReadFile(file)
	require.NoError(t, err)
	s := parse(t, picture)
	assert.Contains(t, s.texts, "tag_lat self/memory0")
	assert.Contains(t, s.texts, "tag_bw self/memory0")
	assert.Equal(t, 2+2*4+1+3, s.dots)
}
