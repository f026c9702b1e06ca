package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/perf/report"
)

// plotter is the command that draws. It is a module of its own, so that goucx does not depend on
// what draws.
const plotter = "ucx_plot"

// picture collects the results of a session for --plot, and draws them at its end.
type picture struct {
	file, program string
	results       bytes.Buffer // final objects in the JSON form
	stderr        io.Writer
}

// newPicture finds ucx_plot before anything is measured.
func newPicture(o *options, stderr io.Writer) (*picture, error) {
	if o.host == "" && !o.loopback {
		return nil, usagef("--plot %s: a server has no results; give the option to the client", o.plot)
	}
	if d, err := os.Stat(filepath.Dir(o.plot)); err != nil {
		return nil, usageError{fmt.Errorf("--plot %s: %w", o.plot, err)}
	} else if !d.IsDir() {
		return nil, usagef("--plot %s: %s is not a directory", o.plot, filepath.Dir(o.plot))
	}
	p := &picture{file: o.plot, stderr: stderr}
	if own, err := os.Executable(); err == nil {
		p.program, err = exec.LookPath(filepath.Join(filepath.Dir(own), plotter))
		if err == nil {
			return p, nil
		}
	}
	var err error
	if p.program, err = exec.LookPath(plotter); err != nil {
		return nil, fmt.Errorf("--plot %s: %s is neither beside ucx_perftest nor in PATH; in goucx's sources `make plot` builds it into bin/, or `go build -C cmd/ucx_plot -o DIR/` into DIR", o.plot, plotter)
	}
	return p, nil
}

// draw draws the results, if there are any.
func (p *picture) draw() error {
	if p.results.Len() == 0 {
		return nil // the session's own error has the reason
	}
	cmd := exec.Command(p.program, "-o", p.file)
	cmd.Stdin, cmd.Stderr = &p.results, p.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("--plot %s: %s: %w", p.file, p.program, err)
	}
	return nil
}

// pictured is a form whose results are also collected for a picture.
type pictured struct {
	report.Form
	picture report.Form
}

func (p *picture) form(f report.Form) report.Form {
	return &pictured{f, report.New(&p.results, report.Style{JSON: true, FinalOnly: true})}
}

// Begin begins a run in both forms.
func (p *pictured) Begin(names []string, params *perf.Params) {
	p.Form.Begin(names, params)
	p.picture.Begin(names, params)
}

// Row prints a row in both forms.
func (p *pictured) Row(r perf.Report) {
	p.Form.Row(r)
	p.picture.Row(r)
}

// End prints what depends on the whole result in both forms.
func (p *pictured) End(r *perf.Result) {
	p.Form.End(r)
	p.picture.End(r)
}

// svgName is the name of the file of --plot.
func svgName(name string) (string, error) {
	if filepath.Ext(name) != ".svg" {
		return "", errors.New("ucx_plot writes SVG; choose a name that ends in .svg")
	}
	return name, nil
}
