package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// figures are the results of one run.
type figures struct {
	rate float64 // messages per second, over the whole run
}

// of returns the figure of a metric. A latency is computed from the rate, because the tools print
// it in whole nanoseconds. For a ping-pong, half of a round trip is the time of one message, and
// the rate counts both directions.
func (f figures) of(m metric) float64 {
	if m == latency {
		return 1e6 / f.rate
	}
	return f.rate
}

// columnRate is the name of the rate's column in the tools' CSV.
const columnRate = "overall_mr"

// threadsColumns is the number of columns of the last row of several threads: iterations, and three
// figures over all.
const threadsColumns = 4

var errOutput = errors.New("unexpected output")

// parseFigures parses the last row of a tool's output with -v.
func parseFigures(out string) (figures, error) {
	_, table, found := strings.Cut("\n"+out, "\niterations,")
	if !found {
		return figures{}, fmt.Errorf("%w: no CSV header in %q", errOutput, lastLines(out))
	}
	r := csv.NewReader(strings.NewReader("iterations," + table))
	r.FieldsPerRecord = -1 // the last row of several threads has no percentile and no averages
	rows, err := r.ReadAll()
	if err != nil || len(rows) < 2 {
		return figures{}, fmt.Errorf("%w: %q: %w", errOutput, lastLines(out), errors.Join(err, errOutput))
	}
	var f figures
	last := rows[len(rows)-1]
	if i := slices.Index(rows[0], columnRate); i == len(rows[0])-1 && (len(last) == len(rows[0]) || len(last) == threadsColumns) {
		f.rate, _ = strconv.ParseFloat(last[len(last)-1], 64) // 0 if malformed
	}
	if f.rate <= 0 {
		return f, fmt.Errorf("%w: %q", errOutput, lastLines(out))
	}
	return f, nil
}
