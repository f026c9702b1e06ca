package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// retiredWord is one line of retired.txt.
type retiredWord struct {
	folder string // "": every folder
	word   *regexp.Regexp
	right  string
}

// retiredWordFiles may hold retired words: the lists of them, and dated results.
var retiredWordFiles = regexp.MustCompile(`^(CHANGELOG\.md|docs/glossary\.md|docs/perf/.*|internal/arch/.*)$`)

// RetiredWords returns the lines of Go files and documents below root that contain a word of
// internal/arch/retired.txt, with the right word. It skips test files.
func RetiredWords(root string) ([]Fault, error) {
	text, err := os.ReadFile(filepath.Join(root, "internal", "arch", "retired.txt"))
	if err != nil {
		return nil, err
	}
	var words []retiredWord
	var all []string // expressions
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		row := strings.Split(strings.TrimSpace(line), "  ")
		if len(row) != 3 {
			return nil, fmt.Errorf("retired.txt: %q is not a folder, an expression and a word", line)
		}
		expression, err := regexp.Compile(row[1])
		if err != nil {
			return nil, fmt.Errorf("retired.txt: %w", err)
		}
		all = append(all, row[1])
		words = append(words, retiredWord{strings.TrimPrefix(row[0]+"/", "*/"), expression, row[2]})
	}

	any, err := regexp.Compile(strings.Join(all, "|"))
	if err != nil {
		return nil, fmt.Errorf("retired.txt: %w", err)
	}

	var faults []Fault
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && slices.Contains([]string{".git", "testdata", "bin"}, d.Name()) {
			return filepath.SkipDir
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		ext := filepath.Ext(name)
		if d.IsDir() || ext != ".go" && ext != ".md" || strings.HasSuffix(name, "_test.go") || retiredWordFiles.MatchString(name) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !any.Match(text) {
			return err
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			for _, w := range words {
				if found := w.word.FindString(line); found != "" && strings.HasPrefix(name, w.folder) {
					faults = append(faults, Fault{fmt.Sprintf("%s:%d", name, number), fmt.Sprintf("%q is retired; write %s", found, w.right)})
				}
			}
		}
		return nil
	})
	return faults, err
}
