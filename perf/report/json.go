package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/goucx/goucx/perf"
)

// jsonForm prints one JSON object per line for each run; without FinalOnly also one per second.
// The keys are stable; docs/perftest.md lists them.
type jsonForm struct {
	output
	style Style
	names []string
	run   *perf.Params
	last  perf.Report
}

// JSONMeans are a mean since the last row, which the row of several threads lacks, and one since the start of
// the run.
type JSONMeans struct {
	Average float64 `json:"average,omitempty"`
	Overall float64 `json:"overall"`
}

// JSONLatency is the time of a message in microseconds. Percentile is that of Rank, in percent; the row of
// several threads has none.
type JSONLatency struct {
	Rank       float64 `json:"rank"`
	Percentile float64 `json:"percentile,omitempty"`
	JSONMeans
}

// JSONRow is one object of the JSON form. Final objects have a Result. Thread is nil in the rows
// of the whole run.
type JSONRow struct {
	Names        []string    `json:"names,omitempty"`
	Test         string      `json:"test"`
	Final        bool        `json:"final"`
	Thread       *int        `json:"thread,omitempty"`
	Iterations   int64       `json:"iterations"`
	ElapsedSec   float64     `json:"elapsed_s"`
	LatencyUsec  JSONLatency `json:"latency_usec"`
	BandwidthMiB JSONMeans   `json:"bandwidth_mib_s"`
	MessageRate  JSONMeans   `json:"message_rate"`
	Result       *JSONResult `json:"result,omitempty"`
}

// JSONResult describes a whole run. Size is in bytes, Percentiles are in microseconds. PerMessage and
// Resources are those of verbs_rate.
type JSONResult struct {
	API         string             `json:"api"`
	Transports  string             `json:"transport"`
	Size        int64              `json:"size"`
	Window      int                `json:"window"`
	StampEvery  int                `json:"stamp_every"`
	Percentiles map[string]float64 `json:"percentiles_usec"`
	Samples     int64              `json:"samples"`
	PerMessage  map[string]float64 `json:"per_message,omitempty"`
	Resources   map[string]float64 `json:"resources,omitempty"`
	Params      perf.Params        `json:"params"`
}

// ReadJSON reads the objects of the JSON form from r, one a line. Empty lines are skipped. An error
// names the line that is no such object.
func ReadJSON(r io.Reader) ([]JSONRow, error) {
	var rows []JSONRow
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var row JSONRow
		if err := json.Unmarshal(line, &row); err != nil {
			return nil, fmt.Errorf("line %d is no result of ucx_perftest --json: %w", n, err)
		}
		if row.Test == "" {
			return nil, fmt.Errorf("line %d is no result of ucx_perftest --json: it names no test", n)
		}
		rows = append(rows, row)
	}
	return rows, lines.Err()
}

// Header prints nothing: objects contain their keys.
func (j *jsonForm) Header(Header) {}

// Begin stores the first fields of the run's objects.
func (j *jsonForm) Begin(names []string, p *perf.Params) { j.names, j.run = names, p }

// Transports prints nothing: the final object has them.
func (j *jsonForm) Transports(string) {}

// Row prints an intermediate row; the last one is printed by End.
func (j *jsonForm) Row(r perf.Report) {
	j.last = r
	if !r.Final && !j.style.FinalOnly {
		j.print(j.row())
	}
}

// End prints the result.
func (j *jsonForm) End(r *perf.Result) {
	o := j.row()
	o.Result = &JSONResult{
		API: r.Test.API.String(), Transports: r.Transports, Size: r.Params.Size(), Window: r.Window, StampEvery: r.StampEvery,
		Percentiles: map[string]float64{"p50": micro(r.P50), "p99": micro(r.P99), "p99.9": micro(r.P999), "max": micro(r.Max)},
		Samples:     r.Samples, PerMessage: figures(r.PerMessage), Resources: figures(r.Resources), Params: r.Params,
	}
	j.print(o)
}

func figures(list []perf.Figure) map[string]float64 {
	m := make(map[string]float64, len(list))
	for _, f := range list {
		m[f.Name] = f.Value
	}
	return m
}

func (j *jsonForm) row() *JSONRow {
	r := j.last
	var thread *int
	if j.run.ThreadCount > 1 && !r.Sum {
		thread = &r.Thread
	}
	return &JSONRow{
		Thread: thread,
		Names:  j.names, Test: j.run.Test, Final: r.Final, Iterations: r.Iterations, ElapsedSec: r.Elapsed.Seconds(),
		LatencyUsec:  JSONLatency{j.run.Rank, micro(r.Percentile), JSONMeans{micro(r.LatencyMoment), micro(r.LatencyTotal)}},
		BandwidthMiB: JSONMeans{mebi(r.BytesMoment), mebi(r.BytesTotal)},
		MessageRate:  JSONMeans{r.MessagesMoment, r.MessagesTotal},
	}
}

func (j *jsonForm) print(o *JSONRow) {
	b, err := json.Marshal(o)
	if err != nil {
		j.err = err
		return
	}
	j.write(string(b) + "\n")
}
