package ucttest

import (
	_ "embed"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed matrix.txt
var matrixText string

// matrix is the checked-in table of what each transport passes.
//
//	case         self   shm      a head line, the transports' columns
//	am/short     pass   pass     a row a case
//	am/keep      N1     N1       not applicable, with a reason
//	N1: messages lie in a ring   the reasons
type matrix struct {
	transports []string
	rows       map[string][]string
	reasons    map[string]string
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
		m.transports = cells
	case len(cells) != len(m.transports):
		return fmt.Errorf("%s: %d columns, want %d", name, len(cells), len(m.transports))
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
// why it was not applicable, or "". The table is that of Linux.
func (m *matrix) compare(t testing.TB, transport, name, reason string) {
	if t.Failed() || runtime.GOOS != "linux" {
		return
	}
	column := slices.Index(m.transports, transport)
	if column < 0 {
		t.Errorf("matrix.txt has no column for transport %s", transport)
		return
	}
	switch cell := m.rows[name][column]; {
	case cell == passed && reason != "":
		t.Errorf("matrix.txt says that %s passes %s, but it was not applicable: %s", transport, name, reason)
	case cell != passed && reason == "":
		t.Errorf("matrix.txt says that %s is not applicable to %s (%s), but it passed", name, transport, m.reasons[cell])
	}
}
