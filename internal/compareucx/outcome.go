package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// outcome is what a user of a tool sees of one line.
type outcome struct {
	// status of the client: its exit code is 0, another one, or it does not end.
	status string
	// server is the same of the server. It waits on if no client came.
	server string
	// columns are the lines of the client's output above its rows.
	columns []string
	// rows are the client's rows: names and iterations, and "#" for each measured number.
	rows []string
	// box is the server's output.
	box []string
	// errors are the client's lines on stderr.
	errors []string
}

// Values of status and server.
const (
	statusGood    = "0"
	statusFails   = "fails"
	statusEndless = "does not end"
	statusWaits   = "waits on"
)

// Kinds of differences. A line that differs in its status is not compared further.
const (
	kindStatus  = "exit status"
	kindServer  = "server's exit status"
	kindColumns = "columns"
	kindRows    = "rows"
	kindBox     = "server's box"
)

// differ lists the kinds in which two outcomes differ.
func differ(ucx, ours outcome) []string {
	var kinds []string
	if ucx.status != ours.status {
		return []string{kindStatus}
	}
	if ucx.server != ours.server {
		kinds = append(kinds, kindServer)
	}
	if !slices.Equal(ucx.rows, ours.rows) {
		kinds = append(kinds, kindRows)
	}
	if ucx.status != statusGood { // UCX's tool prints its whole help then
		return kinds
	}
	if !slices.Equal(ucx.columns, ours.columns) {
		kinds = append(kinds, kindColumns)
	}
	if !slices.Equal(ucx.box, ours.box) {
		kinds = append(kinds, kindBox)
	}
	return kinds
}

// What is left out of an output: the line of goucx's box that UCX's has not, with the frame above it
// where it is the only one, and UCX's log, which goes to stdout.
var (
	onlyTransport = regexp.MustCompile(`(?m)^\+-{106}\+\n\| Transport: .*\n(\+-)`)
	transport     = regexp.MustCompile(`(?m)^\| Transport: .*\n`)
	ucxLog        = regexp.MustCompile(`(?m)^\[\d+\.\d+\] \[.*\n`)
)

// commonOutput returns an output without what one tool alone prints in each run.
func commonOutput(text string) string {
	text = onlyTransport.ReplaceAllString(text, "$1")
	text = transport.ReplaceAllString(text, "")
	return ucxLog.ReplaceAllString(text, "")
}

// splitOutput separates the rows of a client's output from the lines above and between them.
func splitOutput(text string, csv bool) (columns, rows []string) {
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\r\n")
		row, ok := rowShape(l, csv)
		switch {
		case strings.HasPrefix(l, "[thread "): // printed each second: their number depends on the machine
		case ok:
			rows = append(rows, row)
		default:
			columns = append(columns, inWords(l)...)
		}
	}
	return columns, rows
}

// rowShape returns a row with its names and its first number, the iterations, and "#" for each other
// number.
func rowShape(l string, csv bool) (string, bool) {
	words := strings.Fields(l)
	sep := " "
	if csv {
		words, sep = strings.Split(l, ","), ","
	}
	var shape []string
	numbers := 0
	for _, w := range words {
		w = strings.TrimSpace(w)
		if _, err := strconv.ParseFloat(strings.ReplaceAll(w, ",", ""), 64); err != nil {
			shape = append(shape, w)
			continue
		}
		// UCX's tool separates thousands only where the locale en_US is installed.
		w = strings.ReplaceAll(w, ",", "")
		if numbers++; numbers > 1 {
			w = "#"
		}
		shape = append(shape, w)
	}
	if numbers < 4 {
		return "", false
	}
	return strings.Join(shape, sep), true
}

// serverBox returns the server's output without what differs from run to run.
func serverBox(text string) []string {
	var box []string
	for l := range strings.Lines(text) {
		if before, _, ok := strings.Cut(l, "from "); ok {
			l = before + "from HOST"
		}
		box = append(box, inWords(l)...)
	}
	return box
}

// inWords returns a line with its words one blank apart, or nothing for an empty line.
func inWords(l string) []string {
	if words := strings.Fields(l); len(words) > 0 {
		return []string{strings.Join(words, " ")}
	}
	return nil
}

// result is a compared line.
type result struct {
	line
	ucx, ours outcome
	kinds     []string
	why       map[string]*difference // by kind; nil: not known
}

func compared(l line, ucx, ours outcome) result {
	r := result{line: l, ucx: ucx, ours: ours, kinds: differ(ucx, ours), why: map[string]*difference{}}
	for _, k := range r.kinds {
		r.why[k] = known(l, k)
	}
	return r
}

// faults lists what is wrong with a result: differences that are not known, and a failure of goucx's
// tool without a reason in one line.
func (r result) faults() []string {
	var faults []string
	for _, k := range r.kinds {
		if r.why[k] == nil {
			faults = append(faults, fmt.Sprintf("%s: the %s differs:\n  UCX:   %s\n  goucx: %s", r.title(), k, r.ucx.show(k), r.ours.show(k)))
		}
	}
	if n := len(r.ours.errors); r.ours.status == statusFails && n != r.refusals() {
		faults = append(faults, fmt.Sprintf("%s: %d lines on stderr for a failure: %s", r.title(), n, strings.Join(r.ours.errors, " | ")))
	}
	return faults
}

// refusals returns how many lines on stderr a batch file's failures may have: one for each line that
// fails, and the count.
func (r result) refusals() int {
	if len(r.files) == 0 || strings.Count(strings.TrimSpace(r.files[0]), "\n") == 0 {
		return 1
	}
	return 2
}

// show returns the part of an outcome that a kind is about.
func (o outcome) show(kind string) string {
	switch kind {
	case kindStatus:
		return o.status + " " + strings.Join(o.errors, " | ")
	case kindServer:
		return o.server
	case kindColumns:
		return strings.Join(o.columns, " | ")
	case kindRows:
		return strings.Join(o.rows, " | ")
	}
	return strings.Join(o.box, " | ")
}
