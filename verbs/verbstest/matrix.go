package verbstest

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed matrix.txt
var matrixText string

// matrix is the checked-in table of what each fixture passes.
//
//	case         udp    inproc   a head line, the fixtures' columns
//	data/send    pass   pass     a row a case
//	srq/resize   N1     N1       not applicable, with a reason
//	srq/limit    pass   !early   fails, which is known, with a reason
//	N1: queues do not grow       the reasons
//	!early: it comes too soon
type matrix struct {
	fixtures []string
	rows     map[string][]string
	reasons  map[string]string
}

const passed = "pass"

func readMatrix(t testing.TB) *matrix {
	m, err := parseMatrix(matrixText)
	require.NoError(t, err, "matrix.txt")
	for _, th := range themes {
		for _, c := range th.cases {
			require.Contains(t, m.rows, th.name+"/"+c.name, "matrix.txt lacks a case")
		}
	}
	return m
}

func parseMatrix(text string) (*matrix, error) {
	m := &matrix{rows: make(map[string][]string), reasons: make(map[string]string)}
	for i, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		if err := m.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return m, m.validate()
}

func (m *matrix) line(line string) error {
	if label, reason, ok := strings.Cut(line, ":"); ok {
		m.reasons[label] = strings.TrimSpace(reason)
		return nil
	}
	fields := strings.Fields(line)
	name, cells := fields[0], fields[1:]
	switch {
	case name == "case":
		m.fixtures = cells
	case len(cells) != len(m.fixtures):
		return fmt.Errorf("%s: %d columns, want %d", name, len(cells), len(m.fixtures))
	case m.rows[name] != nil:
		return fmt.Errorf("%s: twice", name)
	default:
		m.rows[name] = cells
	}
	return nil
}

func (m *matrix) validate() error {
	used := map[string]bool{passed: true}
	for name, cells := range m.rows {
		if !isCase(name) {
			return fmt.Errorf("%s: no such case", name)
		}
		for _, c := range cells {
			if c != passed && m.reasons[c] == "" {
				return fmt.Errorf("%s: %q is neither %q nor a label with a reason", name, c, passed)
			}
			used[c] = true
		}
	}
	for label := range m.reasons {
		if !used[label] {
			return fmt.Errorf("reason %s: no case has it", label)
		}
	}
	return nil
}

func isCase(name string) bool {
	for _, th := range themes {
		for _, c := range th.cases {
			if name == th.name+"/"+c.name {
				return true
			}
		}
	}
	return false
}

// compare fails t where the outcome of a case is not the listed one. reason is
// why it was not applicable, or "".
func (m *matrix) compare(t testing.TB, fixture, name, reason string) {
	if t.Failed() {
		return
	}
	column := slices.Index(m.fixtures, fixture)
	if column < 0 {
		t.Errorf("matrix.txt has no column for %s", fixture)
		return
	}
	switch cell := m.rows[name][column]; {
	case cell == passed && reason != "":
		t.Errorf("matrix.txt says that %s passes %s, but it was not applicable: %s", fixture, name, reason)
	case cell != passed && reason == "":
		t.Errorf("matrix.txt says that %s is not applicable to %s (%s), but it passed", name, fixture, m.reasons[cell])
	}
}

// known tells why a case fails, where that is listed; "": it is not.
func (m *matrix) known(fixture, name string) string {
	column := slices.Index(m.fixtures, fixture)
	if column < 0 || m.rows[name][column][0] != '!' {
		return ""
	}
	return m.reasons[m.rows[name][column]]
}
