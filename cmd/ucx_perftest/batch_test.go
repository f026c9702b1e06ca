package main

import (
	"os"
	"path/filepath"
	"strings"
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

// A line that cannot run has its reason in one line; all others are runs.
func TestPlanRefusesLines(t *testing.T) {
	for name, tc := range map[string]struct{ line, want string }{
		"no test":         {"x -s 8", "missing test name"},
		"unknown test":    {"x -t nonsense", `-t "nonsense": unknown test "nonsense"; known are am_lat`},
		"unknown option":  {"x -t tag_lat -Q", "unknown shorthand flag: 'Q'"},
		"no argument":     {"x -t tag_lat -s", "flag needs an argument: 's'"},
		"not for a line":  {"x -t tag_lat -p 99", `-p "99": belongs on the command line, not in a batch file`},
		"nor a switch":    {"x -t tag_lat -f", "-f: belongs on the command line, not in a batch file"},
		"help":            {"x -t tag_lat -h", "-h: belongs on the command line, not in a batch file"},
		"mode":            {"x -t tag_lat -e nonsense", `-e "nonsense": known are none peer failover`},
		"no text":         {"x\x01\x7f -t tag_lat -s", "flag needs an argument"},
		"stray word":      {"x -t tag_lat node1", `unexpected "node1"`},
		"size":            {"x -t ucp_get -s 0", "ucp_get: message size too small"},
		"several":         {"x -t tag_lat -O -3 -M multi -T 257", "window -3 is out of range: 1-65536, or 0 for the test's own; number of threads 257 is out of range"},
		"quote":           {"x -t 'tag_lat", "a quote is not closed"},
		"streams":         {"x -t stream_bw -r recv", "test stream_bw: not supported yet: goucx has no streams"},
		"data of streams": {"x -t stream_lat -r recv_data", `-r "recv_data": not supported: goucx has no streams`},
		"pieces":          {"x -t tag_lat -D iov,contig", `-D "iov,contig": not supported: goucx sends one piece`},
		"short pieces":    {"x -t am_lat -D shortiov", `-D "shortiov": not supported: goucx sends one piece`},
		"list of pieces":  {"x -t ucp_put_lat -D sgl -m host,host", `-D "sgl": not supported`},
		"CUDA":            {"x -t tag_lat -m host,cuda", `-m "host,cuda": not supported: goucx has host memory only; supported is host`},
		"GPU":             {"x -t ucp_put_bw -T 32 -L warp", `-L "warp": not supported: goucx has no GPU`},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := planOf(t, "-l", "-b", file(t, "f", "a -t tag_lat\n"+tc.line+"\nb -t tag_bw\n"))
			require.NoError(t, err)
			require.Len(t, p.steps, 3)
			require.NoError(t, p.steps[0].refused)
			require.NoError(t, p.steps[2].refused)
			require.ErrorContains(t, p.steps[1].refused, "f line 2, ")
			require.ErrorContains(t, p.steps[1].refused, tc.want)
			assert.NotRegexp(t, `[^ -~]`, p.steps[1].refused)
			assert.NotContains(t, p.steps[1].refused.Error(), "\n")
			assert.Len(t, p.runs(), 2)
		})
	}
}

// The reason of a line is reported once, however many lines of another file it is combined with.
func TestRefusedLineOfTwoFiles(t *testing.T) {
	tests := file(t, "tests", "lat -t tag_lat\nbad -t tag_lat -m cuda\n")
	sizes := file(t, "sizes", "8 -s 8\nx -s x\n0 -s 0\n")
	for _, order := range [][]string{{"-b", tests, "-b", sizes}, {"-b", sizes, "-b", tests}} {
		out, diagnostics, err := command(append([]string{"-l", "-q", "-f", "-n", "10"}, order...)...)
		assert.Equal(t, 1, exitCode(err))
		assert.Equal(t, 1, strings.Count(diagnostics, "tests line 2, bad: -m"), diagnostics)
		assert.Equal(t, 1, strings.Count(diagnostics, `sizes line 2, x: -s "x": size "x": `), diagnostics)
		assert.Equal(t, 2, strings.Count(out, " 10 "), out)
	}
}

func TestPlanErrors(t *testing.T) {
	_, err := planOf(t, "-l", "-b", file(t, "f", "# nothing\n"))
	require.ErrorContains(t, err, "holds no test")
	assert.Equal(t, 2, exitCode(err))
	_, err = planOf(t, "-l", "-b", file(t, "f", strings.Repeat("x", 70000)))
	require.ErrorContains(t, err, "a line is longer than 65536 bytes")
	p, err := planOf(t, "-l", "-b", file(t, "f", "a -t tag_lat -q -e ''\nb -q -t tag_lat -e peer\n"))
	require.NoError(t, err)
	require.NoError(t, p.steps[1].refused, "-q may stand in a line")
	long := file(t, "long", strings.Repeat("a -t tag_lat\n", 1025))
	_, err = planOf(t, "-l", "-b", long, "-b", long)
	require.ErrorContains(t, err, "more than 1048576 combinations")
	assert.Equal(t, 2, exitCode(err))
	_, err = planOf(t, "-l", "-b", "/no/such/file")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = planOf(t, "-l")
	require.ErrorContains(t, err, "missing test name")
	assert.Equal(t, 2, exitCode(err))
	p, err = planOf(t)
	require.NoError(t, err, "a server needs no test")
	assert.Empty(t, p.steps)
}
