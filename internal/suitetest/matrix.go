package suitetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Matrix is a checked-in table of the cases that each implementation passes.
//
//	case         udp    inproc   a head line, the implementations' columns
//	data/send    pass   pass     a row per case
//	srq/resize   N1     N1       not applicable, with a reason
//	srq/limit    pass   !early   a known failure, with a reason
//	N1: queues do not grow       the reasons
//	!early: it comes too soon
type Matrix struct {
	columns []string
	rows    map[string][]string
	reasons map[string]string
}

const passed = "pass"

// ParseMatrix parses a table. It must have one row for each of cases and no other.
func ParseMatrix(text string, cases []string) (*Matrix, error) {
	m := &Matrix{rows: make(map[string][]string), reasons: make(map[string]string)}
	for i, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		if err := m.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return m, m.validate(cases)
}

func (m *Matrix) line(line string) error {
	if label, reason, ok := strings.Cut(line, ":"); ok {
		m.reasons[label] = strings.TrimSpace(reason)
		return nil
	}
	fields := strings.Fields(line)
	name, cells := fields[0], fields[1:]
	switch {
	case name == "case":
		m.columns = cells
	case len(cells) != len(m.columns):
		return fmt.Errorf("%s: %d columns, want %d", name, len(cells), len(m.columns))
	case m.rows[name] != nil:
		return fmt.Errorf("%s: twice", name)
	default:
		m.rows[name] = cells
	}
	return nil
}

func (m *Matrix) validate(cases []string) error {
	used := map[string]bool{passed: true}
	for name, cells := range m.rows {
		if !slices.Contains(cases, name) {
			return fmt.Errorf("%s: no such case", name)
		}
		for _, c := range cells {
			if c != passed && m.reasons[c] == "" {
				return fmt.Errorf("%s: %q is neither %q nor a label with a reason", name, c, passed)
			}
			used[c] = true
		}
	}
	for _, name := range cases {
		if m.rows[name] == nil {
			return fmt.Errorf("%s: no row", name)
		}
	}
	for label := range m.reasons {
		if !used[label] {
			return fmt.Errorf("reason %s: no case has it", label)
		}
	}
	return nil
}

// Compare fails t if the outcome of a case differs from the table. reason is why the case was not
// applicable, or "".
func (m *Matrix) Compare(t testing.TB, column, name, reason string) {
	if t.Failed() {
		return
	}
	i := slices.Index(m.columns, column)
	if i < 0 {
		t.Errorf("matrix.txt has no column for %s", column)
		return
	}
	switch cell := m.rows[name][i]; {
	case cell == passed && reason != "":
		t.Errorf("matrix.txt lists that %s passes %s, but it was not applicable: %s", column, name, reason)
	case cell != passed && reason == "":
		t.Errorf("matrix.txt lists that %s is not applicable to %s (%s), but it passed", name, column, m.reasons[cell])
	}
}

// Known returns the reason of a known failure, or "".
func (m *Matrix) Known(column, name string) string {
	i := slices.Index(m.columns, column)
	if i < 0 || m.rows[name][i][0] != '!' {
		return ""
	}
	return m.reasons[m.rows[name][i]]
}
