package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/goucx/goucx/perf"
)

// Iterations of the two runs whose difference counts.
const (
	few  = 80 * perf.CountedCall
	many = 240 * perf.CountedCall
	// crooked is how far the first run may be from what the difference says of
	// it, as a part: a count that does not grow with the iterations counts
	// something else than the operation.
	crooked = 0.05
	// tries is how often a row is counted until it is not crooked.
	tries = 8
)

// count is the outcome of a row.
type count struct {
	row row
	per float64 // instructions an operation
	err error
}

// measureAll counts the rows that are chosen; each count that failed says why.
func measureAll(ctx context.Context, chosen *regexp.Regexp) ([]count, error) {
	var counts []count
	var errs []error
	for _, r := range rows {
		if ctx.Err() != nil || !chosen.MatchString(r.name()) {
			continue
		}
		c := count{row: r}
		if c.per, c.err = measure(ctx, r); c.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.name(), c.err))
		}
		counts = append(counts, c)
	}
	return counts, errors.Join(append(errs, ctx.Err())...)
}

// measure counts one row.
func measure(ctx context.Context, r row) (float64, error) {
	symbol, err := "", error(nil)
	for _, c := range perf.CountedOps() {
		if c.Name == r.op {
			symbol = c.Symbol
		}
	}
	if symbol == "" {
		return 0, fmt.Errorf("no operation %q", r.op)
	}
	// A counted function that the runtime moved to another thread or stack in
	// the midst of it is lost to callgrind; the outcome tells. Where it does not,
	// some of the runtime's own instructions were added: the least is the operation's.
	least, good, refused := math.Inf(1), 0, error(nil)
	for range tries {
		var a, b, per float64
		if a, err = callgrind(ctx, r, symbol, few); err == nil {
			b, err = callgrind(ctx, r, symbol, many)
		}
		if err != nil {
			return 0, err
		}
		if per, err = slope(a, b); err != nil {
			refused = err
			continue
		}
		least = min(least, per)
		if good++; good == r.counts() {
			break
		}
	}
	if good == 0 {
		return 0, refused
	}
	return least, nil
}

// callgrind runs this program's child under callgrind, which counts inside of
// symbol alone, and gives the instructions of n operations.
func callgrind(ctx context.Context, r row, symbol string, n int) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "instructions")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "out")
	cmd := exec.CommandContext(ctx, "valgrind", "--tool=callgrind", "--callgrind-out-file="+out,
		"--toggle-collect="+symbol, self, "-child", r.op, "-n", strconv.Itoa(n))
	// One thread runs the counted code: no preemption by signal, no collection.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=1")
	cmd.Env = append(cmd.Env, r.env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, text)
	}
	return total(out)
}

// total gives the instructions that a file of callgrind holds.
func total(file string) (float64, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if n, ok := strings.CutPrefix(s.Text(), "totals: "); ok {
			return strconv.ParseFloat(strings.TrimSpace(n), 64)
		}
	}
	return 0, fmt.Errorf("%s has no totals: %w", file, s.Err())
}

// slope is the count an operation, from those of few and of many operations,
// the same warming before each. It refuses counts that do not grow with the
// operations.
func slope(a, b float64) (float64, error) {
	per := (b - a) / (many - few)
	if a <= 0 || per < 1 || math.Abs(a-(perf.CountedWarm+few)*per) > crooked*a {
		return 0, fmt.Errorf("%.0f instructions for %d operations and %.0f for %d: not of the operation", a, few, b, many)
	}
	return per, nil
}
