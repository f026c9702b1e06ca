package report

import (
	"io"

	"github.com/schollz/progressbar/v3"

	"github.com/goucx/goucx/perf"
)

// progress adds a progress bar on a terminal to a form. It redraws the bar with each row, once a
// second, and never while messages are being counted.
type progress struct {
	Form
	w   io.Writer
	bar *progressbar.ProgressBar
}

// WithProgress returns a form with a progress bar on w, which must be a terminal.
func WithProgress(f Form, w io.Writer) Form { return &progress{Form: f, w: w} }

// Begin starts a new progress bar for the run.
func (p *progress) Begin(names []string, params *perf.Params) {
	p.Form.Begin(names, params)
	total := params.Iterations
	if total == 0 {
		total = -1 // unlimited: a spinner
	}
	p.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetRenderBlankState(false))
}

// Row clears the bar, prints the row, and draws the bar again.
func (p *progress) Row(r perf.Report) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	p.Form.Row(r)
	if p.bar != nil && !r.Final {
		_ = p.bar.Set64(r.Iterations)
	}
}
