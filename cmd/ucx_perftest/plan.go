package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/goucx/goucx/perf"
)

// step is one run of a plan: its names in the batch files and its options.
type step struct {
	names   []string
	where   string // for errors: "batch file f line 3", or ""
	options *options
	refused error // not nil: the reason, in one line, why the run cannot begin
}

// plan is the list of runs of a command line.
type plan struct {
	steps   []step
	columns []string // the batch files' names; empty without batch files
}

// newPlan expands the batch files, each line of one combined with each line of the next. Invalid
// lines are refused when their turn comes. A server without a test gets an empty plan: the client
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

// maxSteps bounds the combinations of batch files.
const maxSteps = 1 << 20

func (p *plan) expand(o *options) error {
	steps := []step{{options: o}}
	for _, file := range o.batch {
		lines, err := readBatch(file)
		if err != nil {
			return usageError{err}
		}
		if len(steps)*len(lines) > maxSteps {
			return usagef("batch file %s: more than %d combinations with the files before it", file, maxSteps)
		}
		p.columns = append(p.columns, filepath.Base(file))
		var next []step
		for _, s := range steps {
			if s.refused != nil {
				next = append(next, s)
				continue
			}
			for _, l := range lines {
				next = append(next, s.with(l))
			}
		}
		steps = next
	}
	p.steps = steps
	return nil
}

// with returns s with the options of a line added.
func (s step) with(l batchLine) step {
	o := *s.options
	o.given = append([]string(nil), o.given...)
	o.Sizes = append([]int64(nil), o.Sizes...)
	o.onlyTests = true
	n := step{names: append(append([]string(nil), s.names...), l.name), options: &o}
	n.where = fmt.Sprintf("batch file %s line %d", l.file, l.line)
	err := l.err
	if err == nil {
		err = o.parse(l.args)
	}
	if err != nil {
		n.refuse(l.name, err)
	}
	return n
}

// refuse records in one line why the step cannot run.
func (s *step) refuse(name string, err error) {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		name = strconv.Quote(name) // the file is no text
	}
	s.refused = fmt.Errorf("%s, %s: %w", s.where, name, inLine{err})
}

// inLine is an error whose text is one line.
type inLine struct{ error }

func (e inLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e inLine) Unwrap() error { return e.error }

// check returns an error if the run of the command line is invalid. In a batch it refuses the
// invalid runs alone, so that all others run.
func (p *plan) check() error {
	for i := range p.steps {
		s := &p.steps[i]
		var err error
		switch {
		case s.refused != nil:
		case s.options.Test == "":
			err = errors.New("missing test name")
		default:
			err = s.options.Check()
		}
		switch {
		case err == nil:
		case s.where == "":
			return usageError{inLine{err}}
		default:
			s.refuse(strings.Join(s.names, "/"), err)
		}
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

// runs returns the steps that are not refused.
func (p *plan) runs() []step {
	var rs []step
	for _, s := range p.steps {
		if s.refused == nil {
			rs = append(rs, s)
		}
	}
	return rs
}

// verbs reports whether the step is a test of verbs.
func (s step) verbs() bool {
	t, err := perf.Lookup(s.options.Test)
	return err == nil && t.API == perf.Verbs
}

// remove removes the steps at these positions, which the client refuses. What this side alone would
// refuse stays: the client has options for all lines that this side may not have.
func (p *plan) remove(positions []int) {
	var left []step
	for i, s := range p.steps {
		if !slices.Contains(positions, i) {
			left = append(left, s)
		}
	}
	p.steps = left
}
