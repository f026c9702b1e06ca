package report

import (
	"io"

	"github.com/schollz/progressbar/v3"

	"github.com/goucx/goucx/perf"
)

// progress shows a line that moves on a terminal, beside a form. It is redrawn
// with each row, once a second, and never while messages are counted otherwise.
type progress struct {
	Form
	w   io.Writer
	bar *progressbar.ProgressBar
}

// WithProgress adds to a form a progress line on w, which must be a terminal.
func WithProgress(f Form, w io.Writer) Form { return &progress{Form: f, w: w} }

// Begin starts a new line for the run.
func (p *progress) Begin(names []string, params *perf.Params) {
	p.Form.Begin(names, params)
	total := params.Iterations
	if total == 0 {
		total = -1 // without end: a spinner
	}
	p.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetRenderBlankState(false))
}

// Row clears the line, prints the row, and draws the line anew.
func (p *progress) Row(r perf.Report) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	p.Form.Row(r)
	if p.bar != nil && !r.Final {
		_ = p.bar.Set64(r.Iterations)
	}
}
