package ucptest

import (
	_ "embed"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

//go:embed matrix.txt
var matrixText string

// held is the cell of a number that a case of this package holds.
const held = "case"

// matrix is the checked-in table of what holds each number over each transport.
type matrix struct {
	transports []string
	rows       map[int][]string
	labels     map[string]string
}

func parseMatrix(text string) (*matrix, error) {
	m := &matrix{rows: make(map[int][]string), labels: make(map[string]string)}
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
	fields := strings.Fields(line)
	n, err := strconv.Atoi(fields[0])
	label, reason, isLabel := strings.Cut(line, ": ")
	switch {
	case fields[0] == "n":
		m.transports = fields[1:]
	case err != nil && !isLabel:
		return fmt.Errorf("%q is neither a row nor a label", line)
	case err != nil:
		m.labels[label] = reason
	case len(fields) < 2+len(m.transports):
		return fmt.Errorf("row %d lacks cells or its text", n)
	case m.rows[n] != nil:
		return fmt.Errorf("row %d: twice", n)
	default:
		m.rows[n] = fields[1 : 1+len(m.transports)]
	}
	return nil
}

// validate wants the numbers without a hole, and every label used.
func (m *matrix) validate() error {
	used := map[string]bool{held: true}
	for n := 1; n <= len(m.rows); n++ {
		if m.rows[n] == nil {
			return fmt.Errorf("row %d is missing", n)
		}
		for _, cell := range m.rows[n] {
			if cell != held && m.labels[cell] == "" {
				return fmt.Errorf("row %d: %q is no label", n, cell)
			}
			used[cell] = true
		}
	}
	for label := range m.labels {
		if !used[label] {
			return fmt.Errorf("label %s: no row has it", label)
		}
	}
	return nil
}

// numberOf is the number that begins a case's name, 0 where there is none.
func numberOf(name string) int {
	digits, _, _ := strings.Cut(name, " ")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// numbered lists the names of the cases that hold number n.
func numbered(n int) (names []string) {
	for _, c := range Cases() {
		if numberOf(c.Name) == n {
			names = append(names, c.Name)
		}
	}
	return names
}

// compare fails t where case name, which has ended, did otherwise than listed.
// The table is that of Linux.
func (m *matrix) compare(t *testing.T, transport, name string) {
	n := numberOf(name)
	column := slices.Index(m.transports, transport)
	if n == 0 || t.Failed() || runtime.GOOS != "linux" {
		return
	}
	if column < 0 || m.rows[n] == nil {
		t.Errorf("matrix.txt has no place for number %d over %s", n, transport)
		return
	}
	switch cell := m.rows[n][column]; {
	case cell == held && t.Skipped():
		t.Errorf("matrix.txt says that a case holds %d over %s, but it was skipped", n, transport)
	case cell != held && !t.Skipped():
		t.Errorf("matrix.txt says of %d over %s %q, but the case passed", n, transport, cell)
	}
}
