package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/goucx/goucx/perf"
)

// step is one run of a plan: its names in the batch files and its options.
type step struct {
	names   []string
	where   string // for errors: "batch file f line 3", or ""
	options *options
	skip    error // not nil: the test is not supported yet
}

// plan is the list of runs of a command line.
type plan struct {
	steps   []step
	columns []string // the batch files' names; empty without batch files
}

// newPlan expands the batch files, each line of one combined with each line of the next. It checks
// every run before the first one starts. A server without a test gets an empty plan: the client
// chooses.
func newPlan(o *options) (*plan, error) {
	p := &plan{}
	server := o.host == "" && !o.loopback
	if len(o.batch) == 0 {
		if o.Test == "" && server {
			return p, nil
		}
		if o.Test == "" {
			return nil, usagef("missing test name: -t <test>, or -b <file> (-h lists them)")
		}
		p.steps = []step{{options: o}}
	} else if err := p.expand(o); err != nil {
		return nil, err
	}
	return p, p.check()
}

func (p *plan) expand(o *options) error {
	steps := []step{{options: o}}
	for _, file := range o.batch {
		lines, err := readBatch(file)
		if err != nil {
			return err
		}
		p.columns = append(p.columns, filepath.Base(file))
		var next []step
		for _, s := range steps {
			for _, l := range lines {
				n, err := s.with(l)
				if err != nil {
					return err
				}
				next = append(next, n)
			}
		}
		steps = next
	}
	p.steps = steps
	return nil
}

// with returns s with the options of a line added.
func (s step) with(l batchLine) (step, error) {
	o := *s.options
	o.given = append([]string(nil), o.given...)
	o.Sizes = append([]int64(nil), o.Sizes...)
	o.onlyTests = true
	where := fmt.Sprintf("batch file %s line %d", l.file, l.line)
	if err := o.parse(l.args); err != nil {
		return step{}, usagef("%s: %w", where, err)
	}
	names := append(append([]string(nil), s.names...), l.name)
	return step{names: names, where: where, options: &o}, nil
}

// check returns an error for every invalid run. In a batch, a test that only UCX supports is
// skipped, so that the others run.
func (p *plan) check() error {
	var errs []error
	for i := range p.steps {
		s := &p.steps[i]
		if s.options.Test == "" {
			errs = append(errs, fmt.Errorf("%s: missing test name", s.where))
			continue
		}
		err := s.options.Check()
		switch {
		case err == nil:
		case s.where == "":
			errs = append(errs, err)
		case errors.Is(err, perf.ErrNotSupportedYet):
			s.skip = fmt.Errorf("%s: %w", s.where, err)
		default:
			errs = append(errs, fmt.Errorf("%s: %w", s.where, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return nil
}

// ignored lists the given options that have no effect, each once.
func (p *plan) ignored() []string {
	var list []string
	for _, s := range p.runs() {
		t, err := perf.Lookup(s.options.Test)
		if err != nil {
			continue // check has reported it
		}
		for _, text := range s.options.ignored(t) {
			if !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
	}
	return list
}

// runs returns the steps that are not skipped.
func (p *plan) runs() []step {
	var rs []step
	for _, s := range p.steps {
		if s.skip == nil {
			rs = append(rs, s)
		}
	}
	return rs
}

// skipped returns an error that lists the skipped steps, or nil.
func (p *plan) skipped() error {
	var errs []error
	for _, s := range p.steps {
		if s.skip != nil {
			errs = append(errs, s.skip)
		}
	}
	return errors.Join(errs...)
}
