package main

import (
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
	// tries is how often operations are counted at the most.
	tries = 16
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
	a, err := least(ctx, r, symbol, few)
	if err != nil {
		return 0, err
	}
	b, err := least(ctx, r, symbol, many)
	if err != nil {
		return 0, err
	}
	return slope(a, b)
}

// errMissed is the error of a run that counted more than the operation.
var errMissed = errors.New("callgrind missed the end of the counted function")

// least counts n operations as often as r says and gives the smallest total: what
// the runtime does meanwhile is only added. Runs that counted more than that are left
// out; on a busy machine they are many.
func least(ctx context.Context, r row, symbol string, n int) (float64, error) {
	lowest, good, err := math.Inf(1), 0, error(nil)
	for range tries {
		var t float64
		if t, err = callgrind(ctx, r, symbol, n); errors.Is(err, errMissed) {
			continue
		} else if err != nil {
			return 0, err
		}
		lowest = min(lowest, t)
		if good++; good == r.counts() {
			break
		}
	}
	if good == 0 {
		return 0, err
	}
	return lowest, nil
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
	return total(out, symbol)
}

// total gives the instructions that a file of callgrind holds. Callgrind may miss
// the end of a counted function whose goroutine was taken off its thread within, and
// count what comes after, too: the next call then looks as if it called itself.
func total(file, symbol string) (float64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	text := string(b)
	if strings.Contains(text, symbol+"'2\n") {
		return 0, errMissed
	}
	_, after, ok := strings.Cut(text, "\ntotals: ")
	if !ok {
		return 0, fmt.Errorf("%s has no totals", file)
	}
	digits, _, _ := strings.Cut(after, "\n")
	return strconv.ParseFloat(strings.TrimSpace(digits), 64)
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
