package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/perf"
)

var update = flag.Bool("update", false, "write the golden files of this package's own forms")

// mib undoes the scaling of a bandwidth column.
const mib = 1 << 20

// The rows that UCX 1.13's ucx_perftest printed in the runs which the golden
// files record.
var (
	lat1 = perf.Report{
		Iterations: 1261977, Percentile: 361, LatencyMoment: 396, LatencyTotal: 396,
		BytesMoment: 19.28 * mib, BytesTotal: 19.28 * mib, MessagesMoment: 2526963, MessagesTotal: 2526963,
	}
	lat2 = perf.Report{
		Iterations: 2574486, Percentile: 338, LatencyMoment: 380, LatencyTotal: 388,
		BytesMoment: 20.05 * mib, BytesTotal: 19.67 * mib, MessagesMoment: 2628154, MessagesTotal: 2577558,
	}
	latEnd = perf.Report{
		Final: true, Iterations: 5000000, Percentile: 335, LatencyMoment: 398, LatencyTotal: 388, Elapsed: 4 * time.Second,
		BytesMoment: 19.18 * mib, BytesTotal: 19.66 * mib, MessagesMoment: 2513735, MessagesTotal: 2576432,
	}
	thread1 = perf.Report{
		Thread: 1, Iterations: 61511, Percentile: 370, LatencyMoment: 15228, LatencyTotal: 15228,
		BytesMoment: 0.50 * mib, BytesTotal: 0.50 * mib, MessagesMoment: 65669, MessagesTotal: 65669,
	}
	thread0 = perf.Report{
		Iterations: 46249, Percentile: 395, LatencyMoment: 20273, LatencyTotal: 20273,
		BytesMoment: 0.38 * mib, BytesTotal: 0.38 * mib, MessagesMoment: 49326, MessagesTotal: 49326,
	}
	threadsEnd = perf.Report{
		Final: true, Sum: true, Iterations: 200000, LatencyTotal: 9253, BytesTotal: 1.65 * mib, MessagesTotal: 216140,
	}
	bwEnd = perf.Report{
		Final: true, Iterations: 20000, Percentile: 109, LatencyMoment: 171, LatencyTotal: 171, Elapsed: time.Second,
		BytesMoment: 5705.93 * mib, BytesTotal: 5705.93 * mib, MessagesMoment: 5842870, MessagesTotal: 5842870,
	}
)

func header(t *testing.T, test string, box, results bool, columns ...string) Header {
	t.Helper()
	h := Header{Params: perf.Defaults(), Box: box, Results: results, Columns: columns}
	if test != "" {
		row, err := perf.Lookup(test)
		require.NoError(t, err)
		h.Test, h.Params.Test = &row, test
	}
	return h
}

func params(test string) *perf.Params {
	p := perf.Defaults()
	p.Test = test
	return &p
}

// Files named ucx-… hold what UCX's tool printed and are never updated.
func TestGolden(t *testing.T) {
	tag, err := perf.Lookup("tag_lat")
	require.NoError(t, err)
	result := &perf.Result{
		Test: tag, Params: *params("tag_lat"), Transports: "shm/memory", Last: latEnd, StampEvery: 1, Window: 1,
		Quantiles: perf.Quantiles{P50: 335, P99: 612.5, P999: 2010, Max: 48123, Samples: 5000000},
	}
	streamed := *result
	streamed.StampEvery, streamed.Samples = 64, 312
	counted := streamed
	counted.PerMessage, counted.Resources = []perf.Figure{{Name: "locks", Value: 1.75 / 32}, {Name: "cqes", Value: 1}}, []perf.Figure{{Name: "contexts", Value: 16}, {Name: "uuars", Value: 288}}
	for name, tc := range map[string]struct {
		style Style
		print func(t *testing.T, f Form)
	}{
		"ucx-client.txt": {Style{}, func(t *testing.T, f Form) {
			f.Header(header(t, "tag_lat", false, true))
			f.Begin(nil, params("tag_lat"))
			f.Row(lat1)
			f.Row(lat2)
			f.Row(latEnd)
			f.End(result)
		}},
		"ucx-final.txt": {Style{FinalOnly: true}, func(t *testing.T, f Form) {
			f.Header(header(t, "tag_lat", false, true))
			f.Begin(nil, params("tag_lat"))
			f.Row(lat1)
			f.Row(latEnd)
			f.End(result)
		}},
		"ucx-server.txt":     {Style{}, func(t *testing.T, f Form) { f.Header(header(t, "tag_lat", true, false)) }},
		"ucx-server-csv.txt": {Style{CSV: true}, func(t *testing.T, f Form) { f.Header(header(t, "tag_lat", true, false)) }},
		"ucx-server-batch.txt": {Style{}, func(t *testing.T, f Form) {
			f.Header(header(t, "", true, false, "b1"))
		}},
		"ucx-loopback.txt": {Style{}, func(t *testing.T, f Form) {
			f.Header(header(t, "am_lat", true, true))
			f.Begin(nil, params("am_lat"))
			f.Row(latEnd)
		}},
		"ucx-rank.txt": {Style{FinalOnly: true}, func(t *testing.T, f Form) {
			h := header(t, "put_bw", false, true)
			h.Params.Rank = 99.9
			f.Header(h)
		}},
		"ucx-csv.txt": {Style{CSV: true}, func(t *testing.T, f Form) {
			f.Header(header(t, "tag_lat", false, true))
			f.Begin(nil, params("tag_lat"))
			f.Row(lat1)
			f.Row(latEnd)
			f.End(result)
		}},
		"extra.txt": {Style{Extra: true}, func(t *testing.T, f Form) {
			h := header(t, "ucp_am_bw", true, true)
			h.Params.AMHeader = 16
			f.Header(h)
			f.Begin(nil, params("ucp_am_bw"))
			f.Transports("shm/memory rc/lo:1")
			f.Row(lat1)
			f.Row(threadsEnd)
			f.Row(latEnd)
		}},
		"ucx-threads.txt": {Style{}, func(t *testing.T, f Form) {
			f.Header(header(t, "tag_lat", false, true))
			f.Begin(nil, params("tag_lat"))
			f.Row(thread1)
			f.Row(thread0)
			f.Row(threadsEnd)
		}},
		"ucx-threads-csv.txt": {Style{CSV: true}, func(t *testing.T, f Form) {
			f.Header(header(t, "tag_lat", false, true))
			f.Begin(nil, params("tag_lat"))
			f.Row(thread1)
			f.Row(threadsEnd)
		}},
		"threads.json": {Style{JSON: true}, func(t *testing.T, f Form) {
			p := params("tag_lat")
			p.ThreadCount = 2
			f.Begin(nil, p)
			f.Row(thread1)
			f.Row(threadsEnd)
			f.End(result)
		}},
		"ucx-batch.txt": {Style{}, func(t *testing.T, f Form) {
			f.Header(header(t, "", false, true, "b1", "b2"))
			f.Begin([]string{"bw1k", "w10"}, params("tag_bw"))
			f.Row(bwEnd)
			f.Begin([]string{"averylongtestname"}, params("tag_bw"))
			f.Row(bwEnd)
		}},
		"ucx-batch-final.txt": {Style{FinalOnly: true}, func(t *testing.T, f Form) {
			f.Header(header(t, "", false, true, "b1", "b2"))
			f.Begin([]string{"bw1k", "w10"}, params("tag_bw"))
			f.Row(bwEnd)
			f.Begin([]string{"averylongtestname", "w10"}, params("tag_bw"))
			f.Row(bwEnd)
		}},
		"ucx-batch-csv.txt": {Style{CSV: true, FinalOnly: true}, func(t *testing.T, f Form) {
			f.Header(header(t, "", false, true, "b1", "b2"))
			f.Begin([]string{"bw1k", "w10"}, params("tag_bw"))
			f.Row(bwEnd)
		}},
		"numeric.txt": {Style{Numeric: true}, func(t *testing.T, f Form) {
			f.Begin(nil, params("tag_lat"))
			f.Row(lat1)
			f.Row(latEnd)
		}},
		"percentiles.txt": {Style{Percentiles: true}, func(t *testing.T, f Form) {
			f.Begin(nil, params("tag_lat"))
			f.Row(latEnd)
			f.End(result)
			f.Row(latEnd)
			f.End(&streamed)
			f.Row(threadsEnd)
			f.End(&counted)
		}},
		"transport-client.txt": {Style{}, func(t *testing.T, f Form) {
			h := header(t, "tag_lat", false, true)
			h.Transports = "rc/lo:1"
			f.Header(h)
			f.Begin(nil, params("tag_lat"))
			f.Transports("rc/lo:1")
			f.Row(lat1)
			f.Row(latEnd)
			f.End(result)
		}},
		"transport-loopback.txt": {Style{}, func(t *testing.T, f Form) {
			h := header(t, "am_lat", true, true)
			h.Transports = "shm/memory"
			f.Header(h)
			f.Begin(nil, params("am_lat"))
			f.Transports("shm/memory")
			f.Row(latEnd)
			f.End(result)
		}},
		"transport-server.txt": {Style{}, func(t *testing.T, f Form) {
			h := header(t, "tag_lat", true, false)
			h.Transports = "shm/memory"
			f.Header(h)
			f.Transports("shm/memory")
		}},
		"transport-csv.txt": {Style{CSV: true}, func(t *testing.T, f Form) {
			h := header(t, "tag_lat", false, true)
			h.Transports = "shm/memory"
			f.Header(h)
			f.Begin(nil, params("tag_lat"))
			f.Transports("shm/memory")
			f.Row(latEnd)
			f.End(result)
		}},
		"transport-batch.txt": {Style{}, func(t *testing.T, f Form) {
			h := header(t, "", false, true, "b1")
			h.Transports = "shm/memory"
			f.Header(h)
			for _, run := range [][2]string{{"first", "shm/memory"}, {"second", "self/memory0"}} {
				f.Begin([]string{run[0]}, params("tag_bw"))
				f.Transports(run[1])
				f.Row(bwEnd)
			}
		}},
		"rows.json": {Style{JSON: true}, func(t *testing.T, f Form) {
			f.Header(header(t, "tag_lat", true, true))
			f.Begin([]string{"lat8"}, params("tag_lat"))
			f.Row(lat1)
			f.Row(latEnd)
			f.End(result)
			f.End(&counted)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			f := New(&b, tc.style)
			tc.print(t, f)
			require.NoError(t, f.Err())
			file := filepath.Join("testdata", name)
			if *update && name[:4] != "ucx-" {
				require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), b.String())
		})
	}
}

// Every line of JSON is an object of its own, and what is final says so.
func TestJSONLines(t *testing.T) {
	var b bytes.Buffer
	f := New(&b, Style{JSON: true, FinalOnly: true})
	f.Begin(nil, params("tag_bw"))
	f.Row(lat1)
	f.Row(bwEnd)
	f.End(&perf.Result{Params: *params("tag_bw"), StampEvery: 64, Window: 32})
	lines := bytes.Split(bytes.TrimSpace(b.Bytes()), []byte("\n"))
	require.Len(t, lines, 1)
	var o struct {
		Test   string
		Final  bool
		Result struct {
			StampEvery int `json:"stamp_every"`
			Window     int
		}
	}
	require.NoError(t, json.Unmarshal(lines[0], &o))
	assert.Equal(t, "tag_bw", o.Test)
	assert.True(t, o.Final)
	assert.Equal(t, 64, o.Result.StampEvery)
	assert.Equal(t, 32, o.Result.Window)
}

// ReadJSON reads what the form prints, and names a line that is something else.
func TestReadJSON(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "rows.json"))
	require.NoError(t, err)
	rows, err := ReadJSON(bytes.NewReader(text))
	require.NoError(t, err)
	require.Len(t, rows, bytes.Count(text, []byte("\n")))
	last := rows[1]
	assert.True(t, last.Final)
	assert.Nil(t, rows[0].Result)
	assert.Equal(t, 0.388, last.LatencyUsec.Overall)
	assert.Equal(t, 2.01, last.Result.Percentiles["p99.9"])
	assert.Equal(t, "shm/memory", last.Result.Transports)
	for text, want := range map[string]string{
		"{}":                                   "line 1 is no result of ucx_perftest --json: it names no test",
		"\n{\"test\":\"tag_lat\"}\n| Test |\n": "line 3 is no result of ucx_perftest --json: invalid character '|'",
	} {
		_, err := ReadJSON(strings.NewReader(text))
		require.ErrorContains(t, err, want)
	}
}

func TestThousands(t *testing.T) {
	for in, want := range map[string]string{"0": "0", "999": "999", "1000": "1,000", "1234567": "1,234,567", "-1000": "-1,000", "-100": "-100"} {
		assert.Equal(t, want, thousands(in))
	}
}

// The progress line draws between rows and leaves none of itself behind.
func TestProgress(t *testing.T) {
	var rows, line bytes.Buffer
	f := WithProgress(New(&rows, Style{FinalOnly: true}), &line)
	p := params("tag_lat")
	p.Iterations = 5000000
	f.Begin(nil, p)
	f.Row(lat1)
	assert.Contains(t, line.String(), "25%")
	f.Row(latEnd)
	assert.NotContains(t, rows.String(), "%")
	tail := line.Bytes()[bytes.LastIndexByte(line.Bytes()[:line.Len()-1], '\r'):]
	assert.Empty(t, bytes.Trim(tail, "\r "), "the last thing drawn is blank")
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteError(t *testing.T) {
	f := New(brokenWriter{}, Style{})
	f.Header(header(t, "tag_lat", true, true))
	f.Row(latEnd)
	require.EqualError(t, f.Err(), "disk full")
}
