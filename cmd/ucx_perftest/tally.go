package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/goucx/goucx/perf"
)

// tally counts the runs of a session. A failed or refused run of a batch is reported at once, and
// the next one follows. The error of a single run is the result of the command.
type tally struct {
	runs, started, failed, refused int
	only                           error           // the result of a session with one run
	reported                       map[string]bool // reasons of refused runs
	interrupted                    bool            // no run follows
	to                             io.Writer
}

// end records the outcome of a run.
func (t *tally) end(err error) {
	t.started++
	if err == nil {
		return
	}
	t.failed++
	t.interrupted = t.interrupted || errors.Is(err, perf.ErrInterrupted)
	if t.runs == 1 {
		t.only = err
		return
	}
	fmt.Fprintf(t.to, "ucx_perftest: %v\n", err)
}

// refuse records a run that cannot begin. A reason that is common to several runs, since a line is
// combined with those of another file, is reported once.
func (t *tally) refuse(reason error) {
	t.started++
	t.refused++
	if t.runs == 1 {
		t.only = reason
		return
	}
	if text := reason.Error(); !t.reported[text] {
		if t.reported == nil {
			t.reported = map[string]bool{}
		}
		t.reported[text] = true
		fmt.Fprintf(t.to, "ucx_perftest: %s\n", text)
	}
}

// err returns the result of the runs: nil if all succeeded.
func (t *tally) err() error {
	if t.only != nil {
		return t.only
	}
	var errs []error
	for _, c := range []struct {
		n    int
		what string
	}{{t.failed, "failed"}, {t.refused, "were refused"}, {t.runs - t.started, "were not begun"}} {
		if c.n > 0 {
			errs = append(errs, fmt.Errorf("%d of %d runs %s", c.n, t.runs, c.what))
		}
	}
	if t.interrupted {
		errs = append(errs, perf.ErrInterrupted)
	}
	return errors.Join(errs...)
}
