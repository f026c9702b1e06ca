package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	sentinel  = regexp.MustCompile(`(?m)^(?:var |\t)(Err[A-Z]\w*)\b[^:\n(]*=`)
	errorType = regexp.MustCompile(`(?m)^type ([A-Z]\w*Error) `)
	mentioned = regexp.MustCompile("`(?:[a-z]+\\.)?(Err[A-Z]\\w*|[A-Z]\\w*Error)`")
)

// TestErrorsDocument wants every exported error of the tree in docs/errors.md,
// and every error named there in the tree.
func TestErrorsDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "errors.md"))
	require.NoError(t, err)
	described := make(map[string]bool)
	for _, m := range mentioned.FindAllSubmatch(text, -1) {
		described[string(m[1])] = true
	}
	declared := declaredErrors(t)
	require.NotEmpty(t, declared)
	for name, file := range declared {
		assert.True(t, described[name], "docs/errors.md lacks %s of %s", name, file)
	}
	for name := range described {
		if name != "ErrDeadlineExceeded" { // of os
			assert.Contains(t, declared, name, "docs/errors.md describes an error that is not there")
		}
	}
}

// declaredErrors gives each exported error of the product with its file.
func declaredErrors(t *testing.T) map[string]string {
	declared := make(map[string]string)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == "tools" || name == "bin" || name == "testdata" || name == ".git" || name == "examples" || name == "internal" && filepath.Dir(path) == root {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		for _, r := range []*regexp.Regexp{sentinel, errorType} {
			for _, m := range r.FindAllSubmatch(source, -1) {
				declared[string(m[1])] = path
			}
		}
		return err
	}))
	return declared
}

func TestErrorPatterns(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"\tErrBusy = ucs.ErrBusy\n", "ErrBusy"},
		{"\tErrClosed error = &sentinel{}\n", "ErrClosed"},
		{"var ErrKey = errors.New(\"x\")\n", "ErrKey"},
		{"\tErr = 1\n", ""},
		{"\t\tErrX := f()\n", ""},
		{"\tErrX := f()\n", ""},
	} {
		m := sentinel.FindStringSubmatch(c.source)
		if c.want == "" {
			assert.Nil(t, m, c.source)
			continue
		}
		require.NotNil(t, m, c.source)
		assert.Equal(t, c.want, m[1])
	}
	assert.Equal(t, "OpError", errorType.FindStringSubmatch("type OpError struct {\n")[1])
	assert.Nil(t, errorType.FindStringSubmatch("type usageError struct {\n"))
}
