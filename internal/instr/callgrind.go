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

// Iterations of the two runs whose difference is evaluated.
const (
	few  = 80 * perf.CountedCall
	many = 240 * perf.CountedCall
	// maxDeviation is the maximum relative deviation of the first run from the value that the
	// difference predicts. A count that does not grow with the iterations includes something other
	// than the operation. The first operations cost more: the worker's periodic work finds its pace (ucs.Pace).
	maxDeviation = 0.12
	// tries is the maximum number of runs for one count.
	tries = 40
)

// count is the result of a row.
type count struct {
	row row
	per float64 // instructions per operation
	err error
}

// measureAll counts the chosen rows. The error joins the errors of failed counts.
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

// least counts n operations as often as r specifies and returns the smallest total: the runtime's
// own work can only add to it. Runs that counted more than the operation are skipped; on a busy
// machine they are frequent.
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

// callgrind runs this program's child under callgrind, which counts only inside of symbol. It
// returns the instructions of n operations.
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
	// One thread runs the counted code: no preemption by signals, no garbage collection.
	// Valgrind reports RDTSCP by CPUID also where the processor lacks it, and refuses it there.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1,cpu.rdtscp=off", "GOGC=off", "GOMAXPROCS=1")
	cmd.Env = append(cmd.Env, r.env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, text)
	}
	return total(out, symbol)
}

// total returns the instruction count in a file of callgrind. Callgrind may miss the end of a
// counted function whose goroutine was descheduled within it, and count what follows, too. The
// next call then looks like a recursive call.
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

// slope returns the count per operation from those of few and of many operations, with the same
// warm-up before each. It returns an error if the counts do not grow with the operations.
func slope(a, b float64) (float64, error) {
	per := (b - a) / (many - few)
	if a <= 0 || per < 1 || math.Abs(a-(perf.CountedWarm+few)*per) > maxDeviation*a {
		return 0, fmt.Errorf("%.0f instructions for %d operations and %.0f for %d: not of the operation", a, few, b, many)
	}
	return per, nil
}
