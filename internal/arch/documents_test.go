package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var root = filepath.Join("..", "..")

// TestLinks follows every link of a document to a file of the tree.
func TestLinks(t *testing.T) {
	documents := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		documents++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, target := range links(string(text)) {
			_, err := os.Stat(filepath.Join(filepath.Dir(path), target))
			assert.NoErrorf(t, err, "%s links to %s", path, target)
		}
		return nil
	}))
	require.NotZero(t, documents)
}

// TestNamedFiles wants every Go file that a document names. A name may leave out leading folders.
// Decision records and the changelog may name what is gone.
func TestNamedFiles(t *testing.T) {
	var files []string
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".go" {
			files = append(files, path)
		}
		return err
	}))
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	wire, err := filepath.Glob(filepath.Join(root, "docs", "wire", "*.md"))
	require.NoError(t, err)
	documents = append(documents, wire...)
	documents = append(documents, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"))
	names := 0
	for _, document := range documents {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, m := range goFile.FindAllStringSubmatch(string(text), -1) {
			names++
			name := string(filepath.Separator) + m[1]
			exists := slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, name) })
			assert.True(t, exists, "%s names %s, which does not exist", document, m[1])
		}
	}
	require.NotZero(t, names)
}

var goFile = regexp.MustCompile("`([a-z0-9][a-z0-9_/]*\\.go)`")

// TestDecisions wants every record in the index, under its number.
func TestDecisions(t *testing.T) {
	dir := filepath.Join(root, "docs", "decisions")
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	records, err := filepath.Glob(filepath.Join(dir, "[0-9]*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, records)
	for i, path := range records {
		name := filepath.Base(path)
		number, _, _ := strings.Cut(name, "-")
		assert.Equal(t, fmt.Sprintf("%04d", i+1), number, "numbers run on")
		assert.Contains(t, string(index), "]("+name+")", "the index lacks %s", name)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(text), "# "+number), "%s does not begin with its number", name)
	}
}

// TestReadmeExample holds the program in the README to the one that the tests
// compile and run.
func TestReadmeExample(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	example, _, found := strings.Cut(rest, "```")
	require.True(t, found, "the README has no program")
	source, err := os.ReadFile(filepath.Join(root, "goucx_test.go"))
	require.NoError(t, err)
	assert.True(t, strings.Contains(string(source), example), "goucx_test.go does not hold the README's program:\n%s", example)
}

func TestFindLinks(t *testing.T) {
	assert.Equal(t, []string{"a/b.md", "c"}, links("[x](a/b.md#part) [y](https://example.com)\n[z](c) [w](#here)\n```\n[q](code)\n```\n"))
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// links gives the targets of a document's links that are paths.
func links(text string) []string {
	var targets []string
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			continue // code
		}
		for _, m := range link.FindAllStringSubmatch(part, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target != "" && !strings.Contains(target, "://") {
				targets = append(targets, target)
			}
		}
	}
	return targets
}

// TestReadmeFigures holds the figures beside UCX's in the README to the table that it names as their source.
func TestReadmeFigures(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(readme), "\n## Beside UCX\n")
	section, _, _ = strings.Cut(section, "\n## ")
	source := regexp.MustCompile(`Source: \[[^]]*\]\(([^)]*)\)`).FindStringSubmatch(section)
	require.NotNil(t, source, "no source")
	table, err := os.ReadFile(filepath.Join(root, source[1]))
	require.NoError(t, err)
	cells := func(line string) (cs []string) {
		for c := range strings.SplitSeq(strings.Trim(line, "| "), "|") {
			cs = append(cs, strings.Trim(c, " `"))
		}
		return cs
	}
	measured := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		if c := cells(strings.TrimSpace(line)); len(c) > 5 {
			measured[strings.Join(c[:5], " ")] = true
		}
	}
	rows := 0
	for line := range strings.Lines(section) {
		c := cells(strings.TrimSpace(line))
		if len(c) < 6 || !strings.HasPrefix(line, "| `") {
			continue
		}
		rows++
		if name, _, _ := strings.Cut(c[1], " "); name != "shm" {
			c[0] += " over " + name
		}
		row := strings.Join([]string{c[0], c[2], c[3], c[4], c[5]}, " ")
		assert.True(t, measured[row], "%s does not have the row %s", source[1], row)
	}
	assert.Greater(t, rows, 5)
}
