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

// platformTags are set by the builds for other platforms.
var platformTags = []string{"linux", "unix", "amd64", "arm64"}

// TestBuildTagsAreVetted: scripts/check vets with every build tag of the tree, so
// that no file is left to the few tests that build with it.
func TestBuildTagsAreVetted(t *testing.T) {
	root := filepath.Join("..", "..")
	script, err := os.ReadFile(filepath.Join(root, "scripts", "check"))
	require.NoError(t, err)
	vetted := slices.Clone(platformTags)
	for line := range strings.Lines(string(script)) {
		if _, tags, ok := strings.Cut(line, "go vet -tags "); ok {
			vetted = append(vetted, strings.Split(strings.Fields(tags)[0], ",")...)
		}
	}
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
			require.Contains(t, vetted, tag, "scripts/check does not vet %s", path)
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
