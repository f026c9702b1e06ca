package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// childMode makes the test binary the command itself.
const childMode = "GOUCX_INFO_TEST_CHILD" // a name with UCX_ would be an unknown setting

func TestMain(m *testing.M) {
	if os.Getenv(childMode) != "" {
		os.Args = append(os.Args[:1], strings.Fields(os.Getenv(childMode))...)
		main()
		os.Exit(0)
	}
	if how := os.Getenv(hangMode); how != "" {
		if err := hang(how); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	for _, kv := range os.Environ() { // the tests bring their own settings
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "UCX_") {
			os.Unsetenv(name)
		}
	}
	home, err := os.MkdirTemp("", "ucx_info")
	if err != nil {
		panic(err)
	}
	os.Setenv("HOME", home)
	code := m.Run()
	os.RemoveAll(home)
	os.Exit(code)
}

// info runs the command and wants it to succeed without a word on stderr.
func info(t *testing.T, args ...string) string {
	t.Helper()
	out, diagnostics, err := try(args...)
	require.NoError(t, err)
	require.Empty(t, diagnostics)
	return out
}

func try(args ...string) (stdout, stderr string, err error) {
	var out, diagnostics bytes.Buffer
	err = run(args, &out, &diagnostics)
	return out.String(), diagnostics.String(), err
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		says string
	}{
		{"nothing to show", nil, "nothing to show"},
		{"unknown letter", []string{"-Z"}, "'Z'"},
		{"unknown name", []string{"--nonsense"}, "--nonsense"},
		{"missing argument", []string{"-d", "-t"}, "'t'"},
		{"stray argument", []string{"-v", "shm"}, `"shm"`},
		{"-t alone", []string{"-v", "-t", "shm"}, "-t chooses the transport of -d, -p, -w, -e, -m, -y or --why, and none is given"},
		{"-n of letters", []string{"-p", "-n", "many"}, "-n many: want a number from 1 to 2147483647"},
		{"-n of nothing", []string{"-p", "-n", "0"}, "-n 0: want a number"},
		{"-n of too many", []string{"-p", "-n", "4294967296"}, "-n 4294967296: want a number"},
		{"-n below", []string{"-p", "-n", "-3"}, "-n -3: want a number"},
		{"-N of letters", []string{"-v", "-N", "1e3"}, "-N 1e3: want a number"},
		{"-n alone", []string{"-n", "3"}, "nothing to show"},
		{"-n without", []string{"-p", "-n"}, "'n'"},
		{"-A of letters", []string{"-e", "-A", "localhost"}, "-A localhost: want an IP address of this host"},
		{"-A alone", []string{"-v", "-A", "127.0.0.1"}, "-A creates the endpoint of -e, which is not given"},
		{"-A twice named", []string{"-e", "-A", "127.0.0.1", "--address", "x"}, "both name the peer"},
		{"-6 of IPv4", []string{"-e", "-6", "-A", "127.0.0.1"}, "-6 says that it is an IPv6 address"},
		{"-6 alone", []string{"-e", "-6"}, "-A is not given"},
		{"-t unknown", []string{"-d", "-t", "warp"}, "known are self, shm, sm, mm, posix"},
		{"-F alone", []string{"-v", "-F", "TLS"}, "-c, which is not given"},
		{"-D", []string{"-p", "-D", "warp"}, "not one of all, shm, net, self"},
		{"-P", []string{"-e", "-P", "warp"}, "not one of self, intra, inter"},
		{"-P inter", []string{"-e", "-P", "inter"}, "give the address of one by --address"},
		{"two peers", []string{"-e", "-P", "self", "--address", "x"}, "both name the peer"},
		{"-u unknown", []string{"-p", "-u", "q"}, "'q' is no feature"},
		{"-u of UCX", []string{"-p", "-u", "ts"}, "'s' is not supported yet"},
		{"--json of text", []string{"-s", "--json"}, "not --system"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, _, err := try(c.args...)
			var u usageError
			require.ErrorAs(t, err, &u)
			assert.ErrorContains(t, err, c.says)
			assert.Empty(t, out)
		})
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args   string
		env    string
		code   int
		stderr string
	}{
		{"-v", "", 0, ""},
		{"-h", "", 0, ""},
		{"-f", "", 0, ""},
		{"-C", "UCX_TLS=self", 0, ""},
		{"-a", "", 0, ""},
		{"-b -y -T -s", "", 0, ""},
		{"-d -e -t shm -n 100 -N 4", "", 0, ""},
		{"-e -u t -A 127.0.0.1", "UCX_LOG_LEVEL=error", 0, ""},
		{"-e -t warp", "", 1, "no transport \"warp\""},
		{"-6", "", 2, "nothing to show"},
		{"-e -A 1.2.3", "", 2, "want an IP address"},
		{"-Z", "", 2, "ucx_info: "},
		{"-c", "UCX_SHM_RING_CELLS=many", 1, "UCX_SHM_RING_CELLS"},
		{"-e --address /nonexistent", "", 1, "/nonexistent"},
	} {
		t.Run(c.args, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childMode+"="+c.args, c.env)
			var out, diagnostics bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &diagnostics
			err := cmd.Run()
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				assert.Equal(t, c.code, exit.ExitCode())
			} else {
				require.NoError(t, err)
				assert.Zero(t, c.code)
			}
			assert.Contains(t, diagnostics.String(), c.stderr)
			assert.Equal(t, c.code == 0, out.Len() > 0, "data goes to stdout, and only data")
			assert.Equal(t, c.code != 0, diagnostics.Len() > 0)
		})
	}
}

// TestHelpNamesEveryOption holds the help to the table that runs, and both to
// UCX's options.
func TestHelpNamesEveryOption(t *testing.T) {
	help := info(t, "-h")
	for _, g := range table(&options{}) {
		assert.Contains(t, help, g.title)
		for _, r := range g.rows {
			want := "  -" + r.letter
			if r.letter == "" {
				want = "  --" + r.name
			}
			assert.Contains(t, help, want)
			first, _, _ := strings.Cut(r.help, "\n")
			assert.Contains(t, help, first)
		}
	}
	ucx, err := os.ReadFile("testdata/ucx-1.13.1-h.txt")
	require.NoError(t, err)
	letters := 0
	for line := range strings.Lines(string(ucx)) {
		rest, isOption := strings.CutPrefix(line, "  -")
		if !isOption {
			continue
		}
		letters++
		_, err := parse([]string{"-" + rest[:1], "1"})
		if err != nil {
			assert.NotContains(t, err.Error(), "unknown shorthand", "UCX's -%s", rest[:1])
		}
	}
	assert.Greater(t, letters, 15)
}

func TestOptionsHaveOneMeaning(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range table(&options{}) {
		for _, r := range g.rows {
			for _, n := range []string{r.letter, r.name} {
				assert.False(t, n != "" && seen[n], "option %s twice", n)
				seen[n] = true
			}
			assert.NotEmpty(t, r.help)
		}
	}
}
