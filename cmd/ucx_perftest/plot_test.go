package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/perf/report"
)

// drawing puts a ucx_plot that runs a shell script in front of PATH.
func drawing(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, plotter), []byte("#!/bin/sh\n"+script), 0o755))
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// ucx_plot is handed all final results; what is printed stays the same, of runs that fail too.
func TestPlot(t *testing.T) {
	drawing(t, `[ "$1" = -o ] && cat >"$2"`)
	batch := filepath.Join(t.TempDir(), "batch")
	require.NoError(t, os.WriteFile(batch, []byte("a -t tag_lat -s 8\nb -t tag_lat -m cuda\nc -t tag_bw -s 64\n"), 0o644))
	file := filepath.Join(t.TempDir(), "a.svg")
	out, _, err := command("-l", "-f", "-q", "-n", "500", "-b", batch, "--plot", file)
	require.EqualError(t, err, "1 of 3 runs were refused")
	assert.Contains(t, out, "\n         a               500 ")
	assert.NotContains(t, out, "{")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	rows, err := report.ReadJSON(bytes.NewReader(text))
	require.NoError(t, err)
	require.Len(t, rows, 2)
	for i, want := range []struct {
		test string
		size int64
	}{{"tag_lat", 8}, {"tag_bw", 64}} {
		assert.Equal(t, want.test, rows[i].Test)
		assert.Equal(t, want.size, rows[i].Result.Size)
		assert.EqualValues(t, 500, rows[i].Iterations)
	}
}

// The results are on stdout whatever becomes of the picture, and its failure is that of the command.
func TestPlotFails(t *testing.T) {
	drawing(t, "echo no ink >&2; exit 3")
	file := filepath.Join(t.TempDir(), "a.svg")
	out, diagnostics, err := command("-l", "-q", "-n", "500", "-t", "tag_lat", "--plot", file)
	require.ErrorContains(t, err, "--plot "+file+": ")
	require.ErrorContains(t, err, "exit status 3")
	assert.Equal(t, 1, exitCode(err))
	assert.Equal(t, "no ink\n", diagnostics)
	assert.Regexp(t, finalRow, out)
}

// Nothing is measured for a picture that cannot be drawn.
func TestPlotRefused(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	file := filepath.Join(dir, "a.svg")
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"not installed": {[]string{"-l", "--plot", file}, 1, "--plot " + file + ": ucx_plot is neither beside ucx_perftest nor in PATH; in goucx's sources `make plot` builds it"},
		"server":        {[]string{"--plot", file}, 2, "a server has no results"},
		"form":          {[]string{"-l", "--plot", "a.png"}, 2, `--plot "a.png": ucx_plot writes SVG; choose a name that ends in .svg`},
		"folder":        {[]string{"-l", "--plot", filepath.Join(dir, "none", "a.svg")}, 2, "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			out, _, err := command(append(c.args, "-t", "tag_lat", "-n", "500")...)
			require.ErrorContains(t, err, c.want)
			assert.Equal(t, c.code, exitCode(err))
			assert.Empty(t, out)
		})
	}
}
