package report

import (
	"io"

	"github.com/goucx/goucx/perf"
)

// Style selects the output format. The zero value is UCX's table with one row per second.
type Style struct {
	// CSV prints comma-separated values, JSON one object per line; JSON takes precedence.
	CSV, JSON bool
	// FinalOnly omits all rows but the last.
	FinalOnly bool
	// Numeric separates thousands.
	Numeric bool
	// Extra adds the transports to each row of the table format.
	Extra bool
	// Percentiles adds a line with p50, p99, p99.9 and the maximum to each result of the table
	// format.
	Percentiles bool
}

// Header describes a session for the lines above its rows.
type Header struct {
	// Test is nil if a batch file selects the tests.
	Test   *perf.Test
	Params perf.Params
	// Box prints the description of the run: the server's part, as in UCX's tool.
	Box bool
	// Transports are those of the first run, "" if they are not known.
	Transports string
	// Results prints the column headings: the client's part.
	Results bool
	// Columns are the batch files' names.
	Columns []string
}

// Form prints one session: a header, then for each run Begin, rows, End. It buffers the text of
// each call and writes it in one Write call. After the first error of the writer, which Err
// returns, it drops all output.
type Form interface {
	Header(h Header)
	// Begin begins a run with parameters p. names are its lines of the batch files, if any.
	Begin(names []string, p *perf.Params)
	// Transports reports which transports the run uses, after Begin.
	Transports(names string)
	Row(r perf.Report)
	// End prints what depends on the whole result; Row has printed the last row.
	End(r *perf.Result)
	Err() error
}

// New returns the form of a style that prints to w.
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

// output writes whole texts and stores the first error.
type output struct {
	w   io.Writer
	err error
}

// Err returns the first error of the writer.
func (o *output) Err() error { return o.err }

func (o *output) write(text string) {
	if o.err == nil {
		_, o.err = io.WriteString(o.w, text)
	}
}

// micro and mebi scale to UCX's units.
func micro(ns float64) float64   { return ns / 1e3 }
func mebi(bytes float64) float64 { return bytes / (1 << 20) }
