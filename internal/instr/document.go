package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"unicode/utf8"
)

const introduction = `# Instructions per operation

%s
` + "`make instructions`" + ` writes this file. Each row is an operation as a program calls it, between two workers of one process over shared memory. The workers are single-threaded, or multi where the row says so. Callgrind counts exactly: a row is the difference of a run of %d operations and one of %d. Counting is on inside of one function of package perf, which only calls the operation in a loop. Both are counted five times in a row with a must, and the least of each stands: what the runtime does meanwhile is only added. Runs in which callgrind missed the end of the function are left out. A pair is one send and one receive: post the receive, send, wait for the receive. RC sends go between two devices of the software RNIC, over the in-process link, beside UCX's tag pair. UCX's figures were counted in the same way.

`

// document returns the table with all information needed to read it. The working directory is the
// module's root.
func document(ctx context.Context, counts []count) (string, error) {
	machine, err := exec.CommandContext(ctx, "scripts/machine").Output()
	if err != nil {
		return "", fmt.Errorf("scripts/machine: %w", err)
	}
	version, err := exec.CommandContext(ctx, "valgrind", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("valgrind: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, introduction, "```\n"+string(machine)+"tool    "+strings.TrimSpace(string(version))+"\n```\n", few, many)
	lines := [][]string{
		{"operation", "settings", "goucx", "UCX 1.13", "UCX master", "must", "aim", ""},
		{"---", "---", "---:", "---:", "---:", "---:", "---:", "---"},
	}
	for _, c := range counts {
		lines = append(lines, c.cells())
	}
	writeTable(&b, lines)
	return b.String(), nil
}

func (c count) cells() []string {
	figure := "not counted"
	if c.err == nil {
		figure = fmt.Sprintf("%.0f", c.per)
	}
	settings := ""
	if len(c.row.env) > 0 {
		settings = "`" + strings.Join(c.row.env, " ") + "`"
	}
	return []string{c.row.name(), settings, figure, c.row.ucx13, c.row.ucx, bound(c.row.must), bound(c.row.aim), c.state()}
}

func bound(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("≤ %.0f", v)
}

// state reports which targets the count meets.
func (c count) state() string {
	switch {
	case c.err != nil || c.row.must == 0:
		return ""
	case c.per > c.row.must+0.5:
		return "**fails**"
	case c.row.aim > 0 && c.per <= c.row.aim+0.5:
		return "holds, aim reached"
	default:
		return "holds"
	}
}

// verdict returns an error if a must does not hold.
func verdict(counts []count) error {
	var errs []error
	for _, c := range counts {
		if c.err == nil && c.state() == "**fails**" {
			errs = append(errs, fmt.Errorf("%s: %.1f instructions, at most %.0f", c.row.name(), c.per, c.row.must))
		}
	}
	return errors.Join(errs...)
}

// writeTable writes lines of cells with aligned columns, for reading in a terminal.
func writeTable(b *strings.Builder, lines [][]string) {
	width := make([]int, len(lines[0]))
	for _, l := range lines {
		for i, c := range l {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, l := range lines {
		for i, c := range l {
			fmt.Fprintf(b, "| %s%s ", c, strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)))
		}
		b.WriteString("|\n")
	}
}
