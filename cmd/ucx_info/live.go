package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/stats/live"
)

// Words that --live accepts besides a PID and a path.
const (
	liveList = "list" // also used without an argument
	liveAll  = "all"
)

// liveLimit is the time limit for a program's reply.
const liveLimit = 3 * time.Second

// liveProgram is a context that publishes its page.
type liveProgram struct {
	PID  int    `json:"pid"`
	Path string `json:"path"`
	// Error is the reason why there is no page.
	Error string     `json:"error,omitempty"`
	Page  *live.Page `json:"page,omitempty"`
}

// liveView prints --live: one line for each program, or everything about the requested ones.
func (t *tool) liveView() error {
	found, err := t.liveFind()
	if err != nil {
		return err
	}
	programs, errs := readAll(found)
	t.document["live"] = programs
	if t.json {
		return nil
	}
	t.liveText(programs)
	if t.live == liveList {
		return nil // a program that does not reply is part of the list
	}
	return errors.Join(errs...)
}

// readAll queries all programs concurrently: a stopped one delays its reply.
func readAll(found []live.Program) ([]liveProgram, []error) {
	programs := make([]liveProgram, len(found))
	errs := make([]error, len(found))
	var all sync.WaitGroup
	for i, f := range found {
		all.Go(func() {
			p, err := live.Read(f.Path, liveLimit)
			programs[i] = liveProgram{PID: f.PID, Path: f.Path, Page: p}
			if err != nil {
				errs[i] = explain(f.PID, err)
				programs[i].Error = errs[i].Error()
			}
		})
	}
	all.Wait()
	return programs, errs
}

// liveFind returns the programs that the argument names.
func (t *tool) liveFind() ([]live.Program, error) {
	set, err := t.settings()
	if err != nil {
		return nil, err
	}
	dir := ucp.LiveDir(set)
	if dir == "" {
		dir = live.DefaultDir()
	}
	pid, notPID := strconv.Atoi(t.live)
	switch i, err := os.Stat(t.live); {
	case t.live == liveList || t.live == liveAll || notPID == nil:
	case err != nil:
		return nil, fmt.Errorf("--live %s: no pid, and no such socket or directory: %w", t.live, err)
	case i.IsDir():
		dir = t.live
	default:
		return []live.Program{live.At(t.live)}, nil
	}
	found, err := live.List(dir)
	if err != nil || notPID != nil {
		return found, err
	}
	found = slices.DeleteFunc(found, func(f live.Program) bool { return f.PID != pid })
	if len(found) == 0 {
		return nil, fmt.Errorf("--live %d: that program shows nothing in %s; start it with UCX_STATS_DEST=unix: %w", pid, dir, ucs.ErrInvalid)
	}
	return found, nil
}

// explain adds to err what the system reports about a program that does not reply.
func explain(pid int, err error) error {
	if pid == 0 || !errors.Is(err, ucs.ErrTimeout) {
		return err
	}
	stat, serr := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if serr != nil {
		return err
	}
	text := string(stat)
	state, _, _ := strings.Cut(strings.TrimSpace(text[strings.LastIndexByte(text, ')')+1:]), " ")
	if state == "T" || state == "t" {
		return fmt.Errorf("%w: it is stopped", err)
	}
	return fmt.Errorf("%w: its state is %s", err, state)
}
