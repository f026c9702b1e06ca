package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output, ImportPath string
}

// key identifies a test within a run; test "" is its package.
type key struct{ pkg, test string }

// report converts events to a log. It keeps the output of a test until the test ends and prints it
// only on failure. It prints the output of a package at once.
type report struct {
	w       io.Writer
	module  string
	setting string // prefix for the names of skipped tests
	allowed []allowance

	output map[key][]string
	skips  int
	denied []string
}

func newReport(w io.Writer, module, setting string, allowed []allowance) *report {
	return &report{w: w, module: strings.TrimSpace(module), setting: setting, allowed: allowed, output: map[key][]string{}}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read go test: %w", err)
		}
	}
}

// line processes one line of output; it prints a line that is not JSON unchanged.
func (r *report) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		fmt.Fprintf(r.w, "%s", line)
		return
	}
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.w, e.Output)
	case "output":
		switch {
		case strings.HasPrefix(e.Output, "=== "): // RUN, PAUSE, CONT, NAME
		case e.Test != "" || strings.HasPrefix(e.Output, "-test.shuffle "):
			r.output[k] = append(r.output[k], e.Output)
		case e.Output != "PASS\n":
			fmt.Fprint(r.w, e.Output)
		}
	case "skip":
		if e.Test != "" {
			r.skip(k)
		}
		delete(r.output, k)
	case "pass":
		delete(r.output, k)
	case "fail":
		r.fail(k)
	}
}

// fail prints the output of a failed test. For a package it prints the output of its unfinished
// tests, which never end after a panic or a time-out.
func (r *report) fail(k key) {
	var ended []key
	for other := range r.output {
		if other == k || k.test == "" && other.pkg == k.pkg {
			ended = append(ended, other)
		}
	}
	slices.SortFunc(ended, func(a, b key) int { return strings.Compare(a.test, b.test) })
	for _, e := range ended {
		fmt.Fprint(r.w, strings.Join(r.output[e], ""))
		delete(r.output, e)
	}
}

func (r *report) skip(k key) {
	r.skips++
	name := r.setting + strings.TrimPrefix(strings.TrimPrefix(k.pkg, r.module), "/") + "/" + k.test
	why, permitted := skipReason(r.output[k]), allows(r.allowed, name)
	if permitted == "" {
		r.denied = append(r.denied, name)
		permitted = "not on the allow-list"
	}
	fmt.Fprintf(r.w, "skip\t%s: %s [%s]\n", name, why, permitted)
}

// location matches the prefix that the testing package adds to a logged line.
var location = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// skipReason returns the text that the test passed to Skip: its last logged line.
func skipReason(output []string) string {
	why := "no reason given"
	for _, line := range output {
		if at := location.FindString(line); at != "" {
			why = strings.TrimSpace(line[len(at):])
		}
	}
	return why
}

// finish prints the number of skips and returns an error if one of them is not allowed.
func (r *report) finish() error {
	if r.skips > 0 {
		fmt.Fprintf(r.w, "%d skipped, %d of them not allowed\n", r.skips, len(r.denied))
	}
	if len(r.denied) > 0 {
		return fmt.Errorf("skipped, and not listed in %s:\n\t%s", allowFile, strings.Join(r.denied, "\n\t"))
	}
	return nil
}
