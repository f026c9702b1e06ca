package report

import (
	"io"

	"github.com/goucx/goucx/perf"
)

// Style says how to print. The zero value is UCX's table with a row a second.
type Style struct {
	// CSV prints comma-separated values, JSON one object a line; JSON wins.
	CSV, JSON bool
	// FinalOnly leaves out all rows but the last.
	FinalOnly bool
	// Numeric separates thousands.
	Numeric bool
	// Percentiles adds a line with p50, p99, p99.9 and the maximum to each table
	// result.
	Percentiles bool
}

// Header is what stands above the rows of a session.
type Header struct {
	// Test is nil where a batch file says later what to run.
	Test   *perf.Test
	Params perf.Params
	// Box prints what is run: the server's part, as in UCX's tool.
	Box bool
	// Results prints the heads of the columns: the client's part.
	Results bool
	// Columns are the batch files' names.
	Columns []string
}

// Form prints one session: a header, then for each run Begin, rows, End. It
// writes to a buffer of its own and hands each call's text over in one write.
// The first error of the writer is kept in Err, later output is dropped.
type Form interface {
	Header(h Header)
	// Begin opens a run of parameters p, named by its lines of the batch files;
	// no names without.
	Begin(names []string, p *perf.Params)
	Row(r perf.Report)
	// End prints what only the whole result tells; the last row came by Row.
	End(r *perf.Result)
	Err() error
}

// New gives the form of a style that prints to w.
func New(w io.Writer, s Style) Form {
	o := output{w: w}
	switch {
	case s.JSON:
		return &jsonForm{output: o, style: s}
	case s.CSV:
		return &csvForm{output: o, style: s}
	default:
		return &table{output: o, style: s}
	}
}

// output writes whole texts and keeps the first error.
type output struct {
	w   io.Writer
	err error
}

// Err is the first error of the writer.
func (o *output) Err() error { return o.err }

func (o *output) write(text string) {
	if o.err == nil {
		_, o.err = io.WriteString(o.w, text)
	}
}

// micro and mebi scale to UCX's units.
func micro(ns float64) float64   { return ns / 1e3 }
func mebi(bytes float64) float64 { return bytes / (1 << 20) }
