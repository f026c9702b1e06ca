package report

import (
	"fmt"
	"strings"

	"github.com/goucx/goucx/perf"
)

// csvForm prints like UCX 1.13's tool with -v. As there, intermediate rows begin with "[thread
// 0]". The last row of several threads has no percentile and no averages since the last row.
type csvForm struct {
	output
	style Style
	names []string
}

// Header prints the column names, those of the batch files first.
func (c *csvForm) Header(h Header) {
	var b strings.Builder
	b.WriteString(box(h))
	if h.Results {
		for _, n := range h.Columns {
			b.WriteString(n + ",")
		}
		fmt.Fprintf(&b, "iterations,%.1f_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n", h.Params.Rank)
	}
	if b.Len() > 0 {
		c.write(b.String())
	}
}

// Begin stores the names for the rows.
func (c *csvForm) Begin(names []string, _ *perf.Params) { c.names = names }

// Transports prints nothing: the columns are UCX's.
func (c *csvForm) Transports(string) {}

// Row prints a row.
func (c *csvForm) Row(r perf.Report) {
	if !r.Final && c.style.FinalOnly {
		return
	}
	var b strings.Builder
	for _, n := range c.names {
		b.WriteString(n + ",")
	}
	if !r.Final {
		b.WriteString(threadLabel(r))
	}
	if r.Sum { // UCX's tool omits these columns too
		fmt.Fprintf(&b, "%d,%.3f,%.2f,%.0f\n", r.Iterations, micro(r.LatencyTotal), mebi(r.BytesTotal), r.MessagesTotal)
		c.write(b.String())
		return
	}
	fmt.Fprintf(&b, "%d,%.3f,%.3f,%.3f,%.2f,%.2f,%.0f,%.0f\n", r.Iterations,
		micro(r.Percentile), micro(r.LatencyMoment), micro(r.LatencyTotal),
		mebi(r.BytesMoment), mebi(r.BytesTotal), r.MessagesMoment, r.MessagesTotal)
	c.write(b.String())
}

// End prints nothing, as UCX's tool does.
func (c *csvForm) End(*perf.Result) {}
