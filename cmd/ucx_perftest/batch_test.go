package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSplitWords(t *testing.T) {
	for line, want := range map[string][]string{
		"":                         nil,
		"   \t\r":                  nil,
		"# all of it":              nil,
		"  # indented":             nil,
		"lat -t tag_lat -s 8":      {"lat", "-t", "tag_lat", "-s", "8"},
		"lat\t-t\ttag_lat\r":       {"lat", "-t", "tag_lat"},
		`"two words" -t 'tag_lat'`: {"two words", "-t", "tag_lat"},
		`a"b c"d ''`:               {"ab cd", ""},
		`lat -s 8 # tail`:          {"lat", "-s", "8"},
		`lat#8 "#9"`:               {"lat#8", "#9"},
		`"it's" 'say "hi"'`:        {"it's", `say "hi"`},
	} {
		got, err := splitWords(line)
		require.NoError(t, err, line)
		assert.Equal(t, want, got, line)
	}
	_, err := splitWords(`lat "-t tag_lat`)
	require.ErrorContains(t, err, "a quote is not closed")
}

func FuzzSplitWords(f *testing.F) {
	f.Add(`lat -t "tag_lat" # x`)
	f.Fuzz(func(t *testing.T, s string) {
		words, err := splitWords(s)
		if err != nil {
			require.Nil(t, words)
		}
	})
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(p, []byte(text), 0o600))
	return p
}

func planOf(t *testing.T, args ...string) (*plan, error) {
	t.Helper()
	o := newOptions()
	require.NoError(t, o.parse(args))
	return newPlan(o)
}

// Two files give all pairs of their lines, the first one's order first; the
// options of the command line come before both.
func TestPlanOfTwoFiles(t *testing.T) {
	tests := file(t, "tests", "# types\nlat -t tag_lat\n\nbw -t tag_bw -O 8 # window\n")
	sizes := file(t, "sizes", "8 -s 8\n64k -s 65536 -n 1000\n")
	p, err := planOf(t, "-l", "-n", "77", "-b", tests, "-b", sizes)
	require.NoError(t, err)
	assert.Equal(t, []string{"tests", "sizes"}, p.columns)
	var names [][]string
	for _, s := range p.runs() {
		names = append(names, s.names)
	}
	assert.Equal(t, [][]string{{"lat", "8"}, {"lat", "64k"}, {"bw", "8"}, {"bw", "64k"}}, names)
	last := p.steps[3].options.Params
	assert.Equal(t, []any{"tag_bw", 8, int64(1000), []int64{65536}}, []any{last.Test, last.Window, last.Iterations, last.Sizes})
	first := p.steps[0].options.Params
	assert.Equal(t, []any{"tag_lat", 0, int64(77), []int64{8}}, []any{first.Test, first.Window, first.Iterations, first.Sizes})
	assert.ElementsMatch(t, []string{"test", "size", "iterations", "outstanding"}, dedupe(p.steps[3].options.given))
}

func dedupe(in []string) []string {
	var out []string
	for _, s := range in {
		if !contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// UCX's own files of test types run as far as goucx carries them; the rest is
// told, not hidden.
func TestPlanSkipsLaterTests(t *testing.T) {
	p, err := planOf(t, "-l", "-b", file(t, "types", "lat -t tag_lat\nbw -t stream_bw\nping -t stream_lat\n"))
	require.NoError(t, err)
	assert.Len(t, p.runs(), 1)
	require.ErrorIs(t, p.skipped(), errors.ErrUnsupported)
	assert.ErrorContains(t, p.skipped(), "types line 2: test stream_bw: not supported yet")
	assert.ErrorContains(t, p.skipped(), "types line 3: test stream_lat")
}

func TestPlanErrors(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"no test":        {"lat -s 8\n", "line 1: missing test name"},
		"unknown test":   {"a -t tag_lat\nb -t nonsense\n", `line 2: invalid argument "nonsense" for "-t, --test"`},
		"unknown option": {"a -t tag_lat -Q\n", "line 1: unknown shorthand flag: 'Q'"},
		"not for a test": {"a -t tag_lat -p 99\n", "line 1: unknown shorthand flag: 'p'"},
		"later option":   {"a -t tag_lat -D iov\n", "line 1: "},
		"stray word":     {"a -t tag_lat node1\n", `line 1: unexpected "node1"`},
		"size":           {"a -t ucp_get -s 0\n", "line 1: ucp_get: message size too small"},
		"quote":          {"a -t 'tag_lat\n", "line 1: a quote is not closed"},
		"nothing":        {"# nothing\n", "holds no test"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := planOf(t, "-l", "-b", file(t, "f", tc.text))
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err := planOf(t, "-l", "-b", "/no/such/file")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = planOf(t, "-l")
	require.ErrorContains(t, err, "missing test name")
	assert.Equal(t, 2, exitCode(err))
	p, err := planOf(t)
	require.NoError(t, err, "a server needs no test")
	assert.Empty(t, p.steps)
}
