package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/perf/report"
)

// result is a final object of the input, with its file if there are several.
type result struct {
	report.JSONRow
	file string
}

// series is a line of a chart: results that differ in their size alone.
type series struct {
	label string
	test  perf.Test
	rows  []report.JSONRow // by ascending size; all runs of one size
	// options are the parameters that tell series apart, by their names in JSON.
	options map[string]string
}

// single reports whether all results have one size.
func (s *series) single() bool {
	return s.rows[0].Result.Size == s.rows[len(s.rows)-1].Result.Size
}

// notOptions are parameters that tell no series apart: the label has them otherwise, or they only
// say how long and how often was measured.
var notOptions = []string{"test", "sizes", "iterations", "warmup", "transport", "device", "rank"}

// group returns the series of the results in their order in the input.
func group(results []result) ([]*series, error) {
	var all []*series
	byKey := map[string]*series{}
	for _, r := range results {
		test, err := perf.Lookup(r.Test)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(r.Result.Params)
		if err != nil {
			return nil, err
		}
		var params map[string]any
		if err := json.Unmarshal(text, &params); err != nil {
			return nil, err
		}
		s := &series{test: test, options: map[string]string{}}
		for name, value := range params {
			if !slices.Contains(notOptions, name) {
				s.options[name] = fmt.Sprint(value)
			}
		}
		s.label = strings.TrimSpace(strings.Join([]string{r.file, r.Test, r.Result.Transports}, " "))
		key := fmt.Sprint(s.label, s.options) // fmt prints maps in the order of their keys
		if byKey[key] == nil {
			byKey[key] = s
			all = append(all, s)
		}
		byKey[key].rows = append(byKey[key].rows, r.JSONRow)
	}
	for _, s := range all {
		slices.SortStableFunc(s.rows, func(a, b report.JSONRow) int { return cmp.Compare(a.Result.Size, b.Result.Size) })
	}
	nameDifferences(all)
	return all, nil
}

// nameDifferences adds to the labels the options that are not the same in all series with this label.
func nameDifferences(all []*series) {
	byLabel := map[string][]*series{}
	for _, s := range all {
		byLabel[s.label] = append(byLabel[s.label], s)
	}
	for _, alike := range byLabel {
		names := map[string]bool{}
		for _, s := range alike {
			for name := range s.options {
				names[name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if !slices.ContainsFunc(alike, func(s *series) bool { return s.options[name] != alike[0].options[name] }) {
				continue
			}
			for _, s := range alike {
				if value, given := s.options[name]; given {
					s.label += fmt.Sprintf(" %s=%s", name, value)
				}
			}
		}
	}
}
