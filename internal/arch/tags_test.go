package arch

import (
	"go/build/constraint"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// givenTags are set by the builds for other platforms, by cgo, by go test -race, and by the step ibverbs of
// scripts/check: that tag needs headers that not every machine has.
var givenTags = []string{"linux", "unix", "amd64", "arm64", "cgo", "race", "ibverbs"}

// TestBuildTagsAreVetted requires that golangci-lint runs with every other build tag of the tree,
// so that no file is left to the few tests that build with it.
func TestBuildTagsAreVetted(t *testing.T) {
	root := filepath.Join("..", "..")
	settings, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	require.NoError(t, err)
	_, list, _ := strings.Cut(string(settings), "\n  build-tags: [")
	list, _, found := strings.Cut(list, "]\n")
	require.True(t, found, "no build tags in .golangci.yml")
	vetted := append(strings.Split(list, ", "), givenTags...)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "testdata"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		src, err := os.ReadFile(path)
		for _, tag := range buildTags(string(src)) {
			require.Contains(t, vetted, tag, "no build tag of .golangci.yml includes %s", path)
		}
		return err
	}))
}

// buildTags lists the tags that the build constraint of a Go file names.
func buildTags(src string) (tags []string) {
	for line := range strings.Lines(src) {
		if strings.HasPrefix(line, "package ") {
			break
		}
		if x, err := constraint.Parse(strings.TrimSpace(line)); err == nil {
			x.Eval(func(tag string) bool { tags = append(tags, tag); return false })
		}
	}
	return tags
}
