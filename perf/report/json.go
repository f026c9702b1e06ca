package report

import (
	"encoding/json"

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

type jsonPair struct {
	Average float64 `json:"average"`
	Overall float64 `json:"overall"`
}

type jsonLatency struct {
	Rank       float64 `json:"rank"`
	Percentile float64 `json:"percentile"`
	jsonPair
}

type jsonRow struct {
	Names        []string     `json:"names,omitempty"`
	Test         string       `json:"test"`
	Final        bool         `json:"final"`
	Thread       *int         `json:"thread,omitempty"`
	Iterations   int64        `json:"iterations"`
	ElapsedSec   float64      `json:"elapsed_s"`
	LatencyUsec  jsonLatency  `json:"latency_usec"`
	BandwidthMiB jsonPair     `json:"bandwidth_mib_s"`
	MessageRate  jsonPair     `json:"message_rate"`
	Result       *jsonDetails `json:"result,omitempty"`
}

type jsonDetails struct {
	API         string             `json:"api"`
	Transports  string             `json:"transport"`
	Size        int64              `json:"size"`
	Window      int                `json:"window"`
	StampEvery  int                `json:"stamp_every"`
	Percentiles map[string]float64 `json:"percentiles_usec"`
	Samples     int64              `json:"samples"`
	Params      perf.Params        `json:"params"`
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
	o.Result = &jsonDetails{
		API: r.Test.API.String(), Transports: r.Transports, Size: r.Params.Size(), Window: r.Window, StampEvery: r.StampEvery,
		Percentiles: map[string]float64{"p50": micro(r.P50), "p99": micro(r.P99), "p99.9": micro(r.P999), "max": micro(r.Max)},
		Samples:     r.Samples, Params: r.Params,
	}
	j.print(o)
}

func (j *jsonForm) row() *jsonRow {
	r := j.last
	var thread *int
	if j.run.ThreadCount > 1 && !r.Sum {
		thread = &r.Thread
	}
	return &jsonRow{
		Thread: thread,
		Names:  j.names, Test: j.run.Test, Final: r.Final, Iterations: r.Iterations, ElapsedSec: r.Elapsed.Seconds(),
		LatencyUsec:  jsonLatency{j.run.Rank, micro(r.Percentile), jsonPair{micro(r.LatencyMoment), micro(r.LatencyTotal)}},
		BandwidthMiB: jsonPair{mebi(r.BytesMoment), mebi(r.BytesTotal)},
		MessageRate:  jsonPair{r.MessagesMoment, r.MessagesTotal},
	}
}

func (j *jsonForm) print(o *jsonRow) {
	b, err := json.Marshal(o)
	if err != nil {
		j.err = err
		return
	}
	j.write(string(b) + "\n")
}
