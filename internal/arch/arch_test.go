package arch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestArchitecture is the check of the whole tree.
func TestArchitecture(t *testing.T) {
	module, pkgs, err := Load(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.NotEmpty(t, pkgs)
	for _, f := range LongFiles(pkgs) {
		t.Logf("long file: %s", f)
	}
	for _, f := range Check(module, pkgs) {
		t.Errorf("%s", f)
	}
}

// TestLoad lists a module of its own, so that what the check sees does not
// depend on this tree: a file behind a build tag, an assembly file, testdata.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	for name, src := range map[string]string{
		"go.mod":               "module example.com/m\n\ngo 1.26.0\n",
		"a/a.go":               "// Package a is a.\npackage a\n",
		"a/a_plan9.go":         "package a\n\nimport _ \"unsafe\"\n",
		"a/a_arm64.s":          "",
		"a/testdata/bad.go":    "not Go at all",
		"a/a_external_test.go": "package a_test\n",
		"n/go.mod":             "module example.com/m/n\n\ngo 1.26.0\n",
		"n/b/b.go":             "// Package b is b.\npackage b\n",
		"tools/go.mod":         "module example.com/m/tools\n\ngo 1.26.0\n",
	} {
		full := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(src), 0o644))
	}
	module, pkgs, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, "example.com/m", module)
	require.Len(t, pkgs, 2)
	require.Equal(t, "a", pkgs[0].Path)
	require.Equal(t, "a", pkgs[0].Name)
	require.Len(t, pkgs[0].Files, 3)
	require.Equal(t, []string{"a_arm64.s"}, pkgs[0].Assembly)
	require.Equal(t, []Import{{"unsafe", true}}, pkgs[0].Files[2].Imports)
	require.Equal(t, "n/b", pkgs[1].Path)
	require.Equal(t, filepath.Join("n", "b", "b.go"), pkgs[1].Files[0].Name)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "n", "go.mod"), []byte("module example.com/other\n\ngo 1.26.0\n"), 0o644))
	_, _, err = Load(dir)
	require.ErrorContains(t, err, "module example.com/other is nested in example.com/m and not named so")
}
