package ucptest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMatrix wants what the matrix names to exist: cases for the numbers that
// cases hold, tests and functions in the files that labels name.
func TestMatrix(t *testing.T) {
	m, err := parseMatrix(matrixText)
	require.NoError(t, err)
	for n, cells := range m.rows {
		if slices.Contains(cells, held) {
			assert.NotEmpty(t, numbered(n), "row %d: no case begins with it", n)
		}
	}
	for label, text := range m.labels {
		if file, names, ok := strings.Cut(strings.TrimPrefix(text, "in "), ": "); ok && strings.HasPrefix(text, "in ") {
			source, err := os.ReadFile(filepath.Join("..", "..", file))
			require.NoError(t, err, label)
			for name := range strings.FieldsSeq(names) {
				found := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`).Match(source)
				assert.True(t, found, "%s: %s has no %s", label, file, name)
			}
		}
		if name, ok := strings.CutPrefix(text, "as "); ok {
			assert.True(t, slices.ContainsFunc(Cases(), func(c Case) bool { return c.Name == name }), "%s: no case %q", label, name)
		}
	}
}

func TestCaseNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range Cases() {
		assert.False(t, seen[c.Name], "two cases are called %q", c.Name)
		seen[c.Name] = true
	}
}

func TestParseMatrix(t *testing.T) {
	const head = "n a b\n"
	for _, c := range []struct{ name, text, err string }{
		{"good", head + "1 case why one\n2 why case two\nwhy: because\n", ""},
		{"a row twice", head + "1 case case one\n1 case case one\n", "line 3: row 1: twice"},
		{"too few cells", head + "1 case one\n", "line 2: row 1 lacks"},
		{"a hole", head + "1 case case one\n3 case case three\n", "row 2 is missing"},
		{"a label that nobody explains", head + "1 case why one\n", `row 1: "why" is no label`},
		{"a label that nobody uses", head + "1 case case one\nwhy: because\n", "label why: no row has it"},
		{"neither", head + "one\n", "neither a row nor a label"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseMatrix(c.text)
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}
