package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// retiredLeft is how many lines of a folder may still contain a retired word. It only shrinks.
var retiredLeft = map[string]int{}

// TestRetiredWords finds no word of retired.txt in the tree.
func TestRetiredWords(t *testing.T) {
	faults, err := RetiredWords(root)
	require.NoError(t, err)
	byFolder := map[string][]Fault{}
	for _, f := range faults {
		file, _, _ := strings.Cut(f.Where, ":")
		folder := filepath.ToSlash(filepath.Dir(file))
		byFolder[folder] = append(byFolder[folder], f)
	}
	for folder, list := range byFolder {
		if len(list) <= retiredLeft[folder] {
			t.Logf("%s: %d of %d", folder, len(list), retiredLeft[folder])
			continue
		}
		for _, f := range list {
			t.Errorf("%s", f)
		}
	}
}

// TestRetiredWordsAreFound names file, line and the right word, in the folder of the row alone.
func TestRetiredWordsAreFound(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"internal/arch/retired.txt": "# comment\n*  \\bgives\\b  returns\na  \\bnap\\b  suspend\n",
		"a/a.go":                    "package a\n\n// f gives a nap.\n",
		"a/a_test.go":               "package a // gives\n",
		"b/b.md":                    "A nap.\n",
	} {
		full := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(text), 0o644))
	}
	faults, err := RetiredWords(dir)
	require.NoError(t, err)
	assert.Equal(t, []Fault{
		{"a/a.go:3", `"gives" is retired; write returns`}, {"a/a.go:3", `"nap" is retired; write suspend`},
	}, faults)
}
