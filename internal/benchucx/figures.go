package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// figures are what one run measured.
type figures struct {
	latency float64 // us, over the whole run
	rate    float64 // messages a second, over the whole run
}

// of is the figure of a metric.
func (f figures) of(m metric) float64 {
	if m == latency {
		return f.latency
	}
	return f.rate
}

// Columns of the tools' CSV.
const (
	columnLatency = "overall_lat"
	columnRate    = "overall_mr"
)

var errOutput = errors.New("unexpected output")

// parseFigures reads the last row of what a tool prints with -v.
func parseFigures(out string) (figures, error) {
	_, table, found := strings.Cut("\n"+out, "\niterations,")
	if !found {
		return figures{}, fmt.Errorf("%w: no CSV header in %q", errOutput, lastLines(out))
	}
	r := csv.NewReader(strings.NewReader("iterations," + table))
	rows, err := r.ReadAll()
	if err != nil || len(rows) < 2 {
		return figures{}, fmt.Errorf("%w: %q: %w", errOutput, lastLines(out), errors.Join(err, errOutput))
	}
	values := map[string]float64{}
	for i, name := range rows[0] {
		if v, err := strconv.ParseFloat(rows[len(rows)-1][i], 64); err == nil {
			values[name] = v
		}
	}
	f := figures{values[columnLatency], values[columnRate]}
	if f.latency <= 0 || f.rate <= 0 {
		return f, fmt.Errorf("%w: %q", errOutput, lastLines(out))
	}
	return f, nil
}
