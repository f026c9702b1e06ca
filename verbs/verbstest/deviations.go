package verbstest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// matrix returns what the fixture must pass: its column of matrix.txt, or everything except for
// its deviations.
func (f *Fixture) matrix(t testing.TB) *suitetest.Matrix {
	if f.Deviations == "" {
		return readMatrix(t)
	}
	text, err := deviationMatrix(f.Name, f.Deviations, f.Kernel)
	require.NoError(t, err)
	m, err := suitetest.ParseMatrix(text, caseNames())
	require.NoError(t, err, "deviations of %s", f.Name)
	return m
}

// deviationMatrix translates a list of deviations to a matrix of one column. Each line of the list
// is
//
//	case  fails|n/a  kernel  reason
//
// where kernel is the release that the deviation was seen on, or its first numbers. It holds for
// that kernel only: a case that passes there, or that another kernel does not pass, fails the run. A
// line that begins with # is a comment.
func deviationMatrix(column, list, kernel string) (string, error) {
	known := make(map[string]bool)
	for _, name := range caseNames() {
		known[name] = true
	}
	cells := make(map[string]string)
	var reasons strings.Builder
	for i, line := range strings.Split(list, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(fields) < 4 || fields[1] != "fails" && fields[1] != "n/a" || !known[fields[0]] {
			return "", fmt.Errorf("line %d: want: case fails|n/a kernel reason: %q", i+1, line)
		}
		if !sameRelease(kernel, fields[2]) {
			continue
		}
		label := fmt.Sprintf("N%d", i)
		if fields[1] == "fails" {
			label = "!" + label
		}
		if cells[fields[0]] != "" {
			return "", fmt.Errorf("line %d: %s is listed twice", i+1, fields[0])
		}
		cells[fields[0]] = label
		fmt.Fprintf(&reasons, "%s: kernel %s: %s\n", label, fields[2], strings.Join(fields[3:], " "))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "case %s\n", column)
	for _, name := range caseNames() {
		cell := cells[name]
		if cell == "" {
			cell = "pass"
		}
		fmt.Fprintf(&b, "%s %s\n", name, cell)
	}
	return b.String() + reasons.String(), nil
}

// sameRelease reports whether a kernel release is one that begins with the given numbers.
func sameRelease(kernel, numbers string) bool {
	rest, ok := strings.CutPrefix(kernel, numbers)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '-')
}
