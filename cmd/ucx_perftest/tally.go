package main

import (
	"errors"
	"fmt"
	"io"
)

// tally counts the runs of a session. A failed run of a batch is reported at once, and the next
// one follows. The error of a single run is the result of the command.
type tally struct {
	runs, started, failed int
	only                  error // the result of a session with one run
	to                    io.Writer
}

// end records the outcome of a run.
func (t *tally) end(err error) {
	t.started++
	switch {
	case err == nil:
		return
	case t.runs == 1:
		t.only = err
	default:
		fmt.Fprintf(t.to, "ucx_perftest: %v\n", err)
	}
	t.failed++
}

// err returns the result of the runs: nil if all succeeded.
func (t *tally) err() error {
	var left error
	if n := t.runs - t.started; n > 0 {
		left = fmt.Errorf("%d of %d runs were not begun", n, t.runs)
	}
	switch {
	case t.only != nil:
		return t.only
	case t.failed == 0:
		return left
	default:
		return errors.Join(fmt.Errorf("%d of %d runs failed", t.failed, t.runs), left)
	}
}
