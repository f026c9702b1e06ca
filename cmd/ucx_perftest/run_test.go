package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/perf"
)

// carried lists the tests that run, with the options that UCT ones need.
func carried() map[string][]string {
	m := map[string][]string{}
	for _, row := range perf.Tests() {
		switch {
		case row.Later:
		case row.API == perf.UCP:
			m[row.Name] = []string{"-t", row.Name}
		case row.API == perf.Verbs:
		default:
			for _, l := range []perf.Layout{perf.Short, perf.Bcopy, perf.Zcopy} {
				m[row.Name+" "+string(l)] = []string{"-t", row.Name, "-D", string(l), "-s", "8"}
			}
		}
	}
	return m
}

// A final row of the table: eight numbers behind the name of the stage.
var finalRow = regexp.MustCompile(`(?m)^Final:( +[0-9.]+){8}$`)

func TestLoopbackOfEveryTest(t *testing.T) {
	for name, args := range carried() {
		t.Run(name, func(t *testing.T) {
			for _, tl := range []string{"self", "shm"} {
				out, _, err := command(append([]string{"-l", "-q", "-n", "500", "-x", tl}, args...)...)
				require.NoError(t, err, tl)
				assert.Regexp(t, finalRow, out)
				assert.Contains(t, out, "         500 ")
			}
		})
	}
}

// UCX's devices are found by UCX's names.
func TestDevicesOfUCX(t *testing.T) {
	for tl, device := range map[string]string{"self": "memory0", "posix": "memory"} {
		out, _, err := command("-l", "-q", "-n", "500", "-t", "am_lat", "-x", tl, "-d", device)
		require.NoError(t, err, tl)
		assert.Regexp(t, finalRow, out, tl)
	}
}

// Warnings of settings go where the settings send them.
func TestWarningsOfSettings(t *testing.T) {
	t.Setenv("UCX_TSL", "x")
	t.Setenv("UCX_IB_HOP_LIMIT", "3")
	const warning = "ucx_perftest: warning: unknown setting UCX_TSL (environment UCX_TSL); did you mean UCX_TLS?\n"
	const unused = "ucx_perftest: warning: settings of UCX that goucx does not use: UCX_IB_HOP_LIMIT=3 (environment); ucx_info --why has the reasons; UCX_WARN_UNUSED_ENV_VARS=n hides this line\n"
	line := []string{"-l", "-n", "10", "-t", "tag_lat"}
	for level, want := range map[string]string{"error": "", "warn": warning + unused, "info": warning + unused} {
		t.Setenv("UCX_LOG_LEVEL", level)
		_, diagnostics, err := command(line...)
		require.NoError(t, err)
		assert.Equal(t, want, diagnostics, level)
	}
	t.Setenv("UCX_LOG_LEVEL", "warn")
	_, diagnostics, err := command(append(line, "-q")...)
	require.NoError(t, err)
	assert.Empty(t, diagnostics)

	path := filepath.Join(t.TempDir(), "log")
	t.Setenv("UCX_LOG_FILE", path)
	_, diagnostics, err = command(line...)
	require.NoError(t, err)
	assert.Empty(t, diagnostics)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(text), "WARN\tunknown setting UCX_TSL (environment UCX_TSL); did you mean UCX_TLS?\n")

	t.Setenv("UCX_STRICT", "maybe")
	_, diagnostics, err = command(line...)
	require.Error(t, err)
	assert.Equal(t, warning+unused, diagnostics, "told although there is no level yet")
}

func TestTwoProcessesOfEveryTest(t *testing.T) {
	for name, args := range carried() {
		t.Run(name, func(t *testing.T) {
			s, c := both(t, nil, append([]string{"-q", "-n", "1000", "-x", "sm"}, args...))
			assert.Regexp(t, finalRow, c.Out.String())
			assert.Empty(t, c.Err.String())
			assert.NotContains(t, c.Out.String(), "API:")
			row, err := perf.Lookup(args[1])
			require.NoError(t, err)
			assert.Contains(t, s.Out.String(), "Waiting for connection...\nAccepted connection from 127.0.0.1:")
			assert.Contains(t, s.Out.String(), "| API:          "+row.API.Title())
			assert.Contains(t, s.Out.String(), "| Test:         "+row.Desc)
			assert.NotContains(t, s.Out.String(), "Final:")
		})
	}
}

// Options that change what the loops do, each over two processes.
func TestOptionsOverTwoProcesses(t *testing.T) {
	for _, line := range []string{
		"-t tag_lat -C", "-t tag_lat -z", "-t tag_lat -V -s 5000", "-t tag_lat -s 0", "-t tag_lat -s 300000 -n 20",
		"-t tag_lat -M multi", "-t tag_lat -M serialized -e -B", "-t tag_lat -w 0 -n 1",
		"-t tag_bw -O 7 -s 100", "-t tag_bw -z --stamp-each", "-t tag_bw -s 300000 -n 50", "-t tag_bw -C -s 0",
		"-t ucp_put_lat -V -s 777", "-t ucp_put_lat -z -s 1", "-t ucp_put_lat -s 100000",
		"-t ucp_put_bw --stamp-each", "-t ucp_put_bw -z -o", "-t ucp_put_bw -s 1000000 -n 50",
		"-t ucp_get --stamp-each -O 3", "-t ucp_get -z -s 100000", "-t ucp_fadd -s 4", "-t ucp_fadd -O 5",
		"-t ucp_fadd --stamp-each", "-t ucp_swap -s 4 -O 2", "-t ucp_cswap -s 4 -O 2 --stamp-each", "-t ucp_add -s 4",
		"-t am_lat -x mm -V -s 100", "-t am_lat -x mm -D bcopy -V -s 1000", "-t am_lat -x mm -D zcopy -V -H 32 -s 2000",
		"-t am_bw -x mm -W 1", "-t am_bw -x mm -W 3 -D bcopy --stamp-each", "-t am_bw -x mm -D zcopy -H 0 -s 16,8,24 -i 64",
		"-t put_lat -x posix -V -s 100", "-t put_lat -x posix -D bcopy -V -s 9", "-t put_lat -x posix -D zcopy -V -s 64",
		"-t put_lat -x shm -D zcopy -s 8,16,24 -i 32", "-t put_bw -x shm -D zcopy -s 8,16,24 -o",
		"-t tag_lat -U", "-t tag_lat -U -C -V -s 5000", "-t tag_bw -U -s 100", "-t tag_sync_lat -V -s 9000", "-t tag_sync_lat -U -O 3", "-t tag_sync_bw -s 300000 -n 50",
		"-t ucp_am_lat -H 16 -V -s 100", "-t ucp_am_lat -H 512 -V -s 300000 -n 20", "-t ucp_am_lat -y -s 0", "-t ucp_am_lat -z -M multi", "-t ucp_am_bw -y -H 8 -s 100", "-t ucp_am_bw -s 300000 -n 50",
		"-t tag_lat -E sleep", "-t tag_bw -E sleep -s 5000", "-t tag_sync_lat -E sleep -U", "-t ucp_am_lat -E sleep -V", "-t ucp_am_bw -E sleep -I", "-t ucp_put_lat -E sleep -V -n 100",
		"-t tag_lat --sharing dynamic -V -s 5000", "-t tag_bw --sharing static -U -s 300000 -n 50", "-t tag_sync_lat --sharing 2xdynamic", "-t ucp_put_lat --sharing dynamic -V -s 777",
		"-t ucp_put_bw --sharing mpi-threads -M multi -o", "-t ucp_get --sharing shared-dynamic -z -O 3", "-t ucp_cswap --sharing dynamic -O 2 --stamp-each", "-t ucp_am_lat --sharing dynamic -V -s 300000 -n 20",
		"-t ucp_put_bw -E sleep", "-t ucp_get -E sleep", "-t ucp_fadd -E sleep", "-t ucp_add -E sleep",
		"-t add_lat -x shm -s 4", "-t add_mr -x shm -s 4", "-t fadd -x shm -s 4", "-t cswap -x shm --stamp-each",
	} {
		t.Run(line, func(t *testing.T) {
			args := append([]string{"-q", "-n", "1000"}, strings.Fields(line)...)
			_, c := both(t, nil, args)
			assert.Regexp(t, finalRow, c.Out.String())
		})
	}
}

// lastLine is the final row: a slow machine's rows stand before it.
func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

func TestForms(t *testing.T) {
	t.Run("csv", func(t *testing.T) {
		_, c := both(t, nil, []string{"-t", "tag_lat", "-n", "1000", "-v"})
		lines := strings.Split(strings.TrimSpace(c.Out.String()), "\n")
		require.GreaterOrEqual(t, len(lines), 2) // more where the run took seconds
		assert.Equal(t, "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr", lines[0])
		assert.Regexp(t, `^1000(,[0-9.]+){7}$`, lines[len(lines)-1])
	})
	t.Run("rows a second", func(t *testing.T) {
		port := suitetest.FreePort(t)
		start(t, "-p", port)
		c := start(t, "127.0.0.1", "-p", port, "-t", "tag_lat", "-n", "0")
		c.Says("[thread 0]")
	})
	t.Run("json", func(t *testing.T) {
		s, c := both(t, []string{"--json"}, []string{"-t", "tag_bw", "-n", "1000", "--json"})
		var o struct {
			Test       string
			Final      bool
			Iterations int64
			Latency    struct{ Overall float64 } `json:"latency_usec"`
			Result     struct {
				StampEvery  int `json:"stamp_every"`
				Window      int
				Percentiles map[string]float64 `json:"percentiles_usec"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(lastLine(c.Out.String())), &o))
		assert.Equal(t, []any{"tag_bw", true, int64(1000), 64, 32}, []any{o.Test, o.Final, o.Iterations, o.Result.StampEvery, o.Result.Window})
		assert.Positive(t, o.Latency.Overall)
		for _, p := range []string{"p50", "p99", "p99.9", "max"} {
			assert.Positive(t, o.Result.Percentiles[p], p)
		}
		assert.Empty(t, s.Out.String(), "a server's JSON holds no prose")
		assert.Contains(t, s.Err.String(), "Waiting for connection")
	})
	t.Run("percentiles and note", func(t *testing.T) {
		out, errs, err := command("-l", "-t", "tag_bw", "-n", "1000", "--percentiles")
		require.NoError(t, err)
		assert.Regexp(t, `Percentiles \(usec\): p50 .* \(means of 64 messages; 15 samples\)`, out)
		assert.Empty(t, errs, "stderr is no terminal")
		_, errs, err = command("-l", "-t", "tag_bw", "-n", "1000", "-v")
		require.NoError(t, err)
		assert.Contains(t, errs, "tag_bw is stamped at every 64th message")
		for _, more := range []string{"--stamp-each", "-q"} {
			_, errs, err = command("-l", "-t", "tag_bw", "-n", "1000", "-v", more)
			require.NoError(t, err)
			assert.Empty(t, errs)
		}
		assert.NotContains(t, out, "\r", "no progress line where stdout is no terminal")
	})
}

func TestBatchOverTwoProcesses(t *testing.T) {
	tests := file(t, "tests", "lat -t tag_lat\nput -t ucp_put_bw # stream\n'fetch add' -t ucp_fadd\n")
	sizes := file(t, "sizes", "eight -s 8\nagain -s 8 -n 300\n")
	args := []string{"-q", "-n", "500", "-b", tests, "-b", sizes}
	t.Run("the client alone has the files", func(t *testing.T) {
		s, c := both(t, nil, append([]string{"-v", "-f"}, args...))
		lines := strings.Split(strings.TrimSpace(c.Out.String()), "\n")
		require.Len(t, lines, 7)
		assert.True(t, strings.HasPrefix(lines[0], "tests,sizes,iterations,50.0_percentile_lat"), lines[0])
		assert.Regexp(t, `^lat,eight,500,`, lines[1])
		assert.Regexp(t, `^fetch add,again,300,`, lines[6])
		assert.Contains(t, s.Out.String(), "+-----")
	})
	t.Run("both have them, as UCX's tool needs it", func(t *testing.T) {
		_, c := both(t, []string{"-b", tests, "-b", sizes}, args)
		assert.Contains(t, c.Out.String(), "+lat/eight-----+--------------+")
		assert.Len(t, finalRow.FindAllString(c.Out.String(), -1), 6)
	})
	t.Run("what the client's command line adds, the server needs not", func(t *testing.T) {
		f := file(t, "sizes", "8 -s 8\nbad -s x\npieces -s 16,48\nfew -n 7\n")
		port := suitetest.FreePort(t)
		s := start(t, "-p", port, "-b", f)
		c := start(t, "127.0.0.1", "-p", port, "-q", "-v", "-f", "-n", "100", "-t", "tag_bw", "-X", "-b", f)
		assert.Equal(t, 1, c.End(patience))
		assert.Equal(t, 0, s.End(patience), "%s", &s.Err)
		assert.Contains(t, c.Err.String(), "1 of 4 runs were refused")
		assert.Regexp(t, `\n8,100,.*\npieces,100,.*\nfew,7,.*\n$`, c.Out.String())
	})
	t.Run("refused lines are reported, and the others run", func(t *testing.T) {
		f := file(t, "types", "gpu -t tag_lat -m cuda\nlat -t tag_lat\nstream -t stream_lat\nput -t ucp_put_lat\nx -Q\n")
		out, diagnostics, err := command("-l", "-q", "-n", "100", "-b", f)
		require.EqualError(t, err, "3 of 5 runs were refused")
		assert.Equal(t, 1, exitCode(err))
		assert.Len(t, finalRow.FindAllString(out, -1), 2)
		port := suitetest.FreePort(t)
		s := start(t, "-p", port)
		c := start(t, "127.0.0.1", "-p", port, "-q", "-n", "100", "-b", f)
		assert.Equal(t, 1, c.End(patience))
		assert.Equal(t, 0, s.End(patience), "%s", &s.Err)
		assert.Len(t, finalRow.FindAllString(c.Out.String(), -1), 2)
		assert.Equal(t, diagnostics+"ucx_perftest: 3 of 5 runs were refused\n", c.Err.String())
		assert.Regexp(t, `(?s)^ucx_perftest: batch file .*types line 1, gpu: .* line 3, stream: .* line 5, x: `, diagnostics)
		assert.Equal(t, 3, strings.Count(diagnostics, "\n"))
	})
	t.Run("no line runs", func(t *testing.T) {
		port := suitetest.FreePort(t)
		s := start(t, "-p", port)
		c := start(t, "127.0.0.1", "-p", port, "-v", "-b", file(t, "types", "gpu -t tag_lat -m cuda\n"))
		assert.Equal(t, 1, c.End(patience))
		assert.Equal(t, 0, s.End(patience), "%s", &s.Err)
		assert.Contains(t, c.Err.String(), "line 1, gpu: -m")
		assert.Equal(t, "types,iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n", c.Out.String())
	})
}

func TestUsageErrors(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"-l", "missing test name"},
		{"somehost", "missing test name"},
		{"-l -t nonsense", `unknown test "nonsense"`},
		{"-l -t stream_bw", "test stream_bw: not supported yet"},
		{"-l -t tag_lat -n -5", "number of iterations -5 is out of range"},
		{"-l -t tag_lat -s -1", "-1"},
		{"-l -t tag_bw -O -1", "-1"},
		{"-l -t tag_lat -T 0", "number of threads 0 is out of range"},
		{"-l -t tag_lat -T 257 -M multi", "number of threads 257 is out of range"},
		{"-l -t tag_lat -s 99999999999", "message size 99999999999 is out of range"},
		{"-l -t ucp_fadd -s 16", "4 or 8 bytes"},
		{"-l -t ucp_get -s 0", "message size too small, need to be at least 1"},
		{"-l -t tag_lat -v --percentiles", "-v and --percentiles do not go together"},
		{"-l -t tag_lat --json -v", "--json and -v do not go together"},
		{"-l -t tag_lat --json -N", "--json and -N do not go together"},
		{"-l -t am_lat -s 4", "active message header size 8 is larger than message size 4"},
		{"-l -t ucp_fadd -s 16,48 -V", "an atomic works on 4 or 8 bytes; ucp_fadd: only ping-pongs"},
		{"-l -t tag_lat -b /no/such/file", ""},
	} {
		t.Run(tc.args, func(t *testing.T) {
			out, _, err := command(strings.Fields(tc.args)...)
			require.ErrorContains(t, err, tc.want)
			if tc.want != "" {
				assert.Equal(t, 2, exitCode(err))
			}
			assert.Empty(t, out)
		})
	}
}

func TestRunErrors(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"-l -t am_lat -x nonsense", `unknown transport "nonsense"; known are self shm`},
		{"-l -t am_lat", "needs a transport (-x) and a device (-d); there are self/memory0 shm/memory"},
		{"-l -t am_lat -x shm -d eth0", `no interface for transport "shm" and device "eth0"`},
		{"-l -t am_lat -x shm -s 100000", "message size (100000) is larger than max supported"},
		{"-l -t am_lat -x shm -D bcopy -s 1000000", "message size (1000000) is larger than max supported"},
		{"-l -t am_lat -x shm -D zcopy -H 4000 -s 4100", "active message header size (4000) is larger than max supported"},
		{"-c 4000 -l -t tag_lat", "-c 4000"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			p := start(t, strings.Fields(tc.args)...)
			assert.Equal(t, 1, p.End(patience))
			assert.Contains(t, p.Err.String(), tc.want)
		})
	}
	t.Run("port in use", func(t *testing.T) {
		l, err := net.Listen("tcp", ":0")
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		_, _, err = command("-p", port)
		require.ErrorContains(t, err, "listen on port "+port+": ")
		assert.ErrorContains(t, err, "address already in use")
		assert.Equal(t, 1, exitCode(err))
	})
	t.Run("a server that never comes", func(t *testing.T) {
		_, _, err := command("127.0.0.1", "-p", suitetest.FreePort(t), "-t", "tag_lat", "--wait", "100ms")
		require.ErrorContains(t, err, "no server came within 100ms: ")
	})
	for _, args := range []string{"-t ucp_fadd -s 16", "-D iov -t tag_lat", "-t tag_lat --json -v", "-t tag_lat -c 4000", ""} {
		t.Run("a server learns that its client cannot run "+args, func(t *testing.T) {
			port := suitetest.FreePort(t)
			s := start(t, "-p", port)
			s.Says("Waiting for connection")
			_, _, err := command(append([]string{"-p", port, "127.0.0.1"}, strings.Fields(args)...)...)
			require.Error(t, err)
			assert.Equal(t, 1, s.End(patience))
			assert.Contains(t, s.Err.String(), "reports: "+err.Error()+"\n")
		})
	}
	t.Run("both sides tell what the transport refuses", func(t *testing.T) {
		port := suitetest.FreePort(t)
		s := start(t, "-p", port)
		c := start(t, "127.0.0.1", "-p", port, "-t", "put_lat", "-x", "self")
		assert.Equal(t, 1, c.End(patience))
		assert.Equal(t, 1, s.End(patience))
		assert.Contains(t, c.Err.String()+s.Err.String(), "self/memory0: unreachable")
	})
}

func TestMismatch(t *testing.T) {
	for _, tc := range []struct{ server, client, want string }{
		{"-t tag_lat", "-t ucp_put_lat", "-t is tag_lat here and ucp_put_lat there"},
		{"-s 64", "-t tag_lat", "-s is 64 here and 8 there"},
		{"-t tag_bw -O 4", "-t tag_bw -O 8", "-O is 4 here and 8 there"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			port := suitetest.FreePort(t)
			s := start(t, append([]string{"-p", port}, strings.Fields(tc.server)...)...)
			c := start(t, append([]string{"127.0.0.1", "-q", "-p", port}, strings.Fields(tc.client)...)...)
			assert.Equal(t, 1, c.End(patience))
			assert.Equal(t, 1, s.End(patience))
			both := fmt.Sprintf("(pid %d on ", s.Cmd.Process.Pid)
			for _, p := range []*suitetest.Command{s, c} {
				assert.Contains(t, p.Err.String(), tc.want)
				assert.Contains(t, p.Err.String(), both)
				assert.Contains(t, p.Err.String(), fmt.Sprintf("(pid %d on ", c.Cmd.Process.Pid))
			}
			assert.Contains(t, c.Err.String(), "reports: the sides disagree")
		})
	}
	t.Run("batches of other lengths", func(t *testing.T) {
		one, two := file(t, "b", "a -t tag_lat\n"), file(t, "b", "a -t tag_lat\nb -t tag_bw\n")
		port := suitetest.FreePort(t)
		s := start(t, "-p", port, "-b", one)
		c := start(t, "127.0.0.1", "-q", "-p", port, "-b", two)
		assert.Equal(t, 1, c.End(patience))
		assert.Equal(t, 1, s.End(patience))
		assert.Contains(t, s.Err.String(), "1 runs here and 2 there")
	})
}

// Whoever dies, the other side ends with an error that names it. Each run takes more than a second:
// outside of make nightly one side is killed.
func TestKilled(t *testing.T) {
	const server, client = "server", "client"
	for line, victims := range map[string][]string{
		"-t tag_lat": {server, client}, "-t tag_bw": {server, client}, "-t ucp_put_lat": {server, client},
		"-t ucp_put_bw": {server, client}, "-t ucp_get --stamp-each": {server}, "-t ucp_fadd": {server},
		"-t am_lat -x shm": {server}, "-t am_bw -x shm": {client}, "-t put_lat -x shm": {client},
		"-t put_bw -x shm -o": {server, client}, "-t add_lat -x shm": {server},
		"-t tag_lat -E sleep": {server, client}, "-t ucp_am_lat -E sleep": {server}, "-t ucp_put_lat -E sleep": {client},
		"-t tag_lat -T 2 -M multi": {server, client}, "-t tag_sync_bw -U": {client}, "-t ucp_am_bw": {server},
	} {
		if !suitetest.All() {
			victims = victims[:1]
		}
		for _, victim := range victims {
			t.Run(line+" "+victim, func(t *testing.T) {
				port := suitetest.FreePort(t)
				s := start(t, "-p", port)
				c := start(t, append([]string{"127.0.0.1", "-q", "-p", port, "-n", "0", "--interval", "50ms"}, strings.Fields(line)...)...)
				c.Says("[thread 0]") // it runs
				dead, alive := s, c
				if victim == client {
					dead, alive = c, s
				}
				require.NoError(t, dead.Cmd.Process.Kill())
				at := time.Now()
				assert.Equal(t, 1, alive.End(patience))
				took := time.Since(at)
				t.Logf("%v after the kill: %s", took, strings.TrimSpace(alive.Err.String()))
				assert.Less(t, took, 8*time.Second, "waits for nothing of who is dead")
				assert.Regexp(t, `the other side is gone: .* \(pid \d+ on |peer failed: .`, alive.Err.String(), "who, or why")
			})
		}
	}
}

// UCX's tool at the other end is told apart, where it is installed.
func TestUCXAtTheOtherEnd(t *testing.T) {
	tool, err := exec.LookPath("ucx_perftest")
	if err != nil {
		t.Skipf("UCX's tool is not installed, a recorded greeting stands for it in perf/rte: %v", err)
	}
	t.Run("as client", func(t *testing.T) {
		port := suitetest.FreePort(t)
		s := start(t, "-p", port)
		s.Says("Waiting")
		ucx := exec.Command(tool, "127.0.0.1", "-p", port, "-t", "tag_lat", "-n", "10")
		require.NoError(t, ucx.Start())
		defer func() { _ = ucx.Process.Kill(); _ = ucx.Wait() }()
		assert.Equal(t, 1, s.End(patience))
		assert.Contains(t, s.Err.String(), "it is UCX's own ucx_perftest")
	})
	t.Run("as server", func(t *testing.T) {
		port := suitetest.FreePort(t)
		ucx := exec.Command(tool, "-p", port)
		require.NoError(t, ucx.Start())
		defer func() { _ = ucx.Process.Kill(); _ = ucx.Wait() }()
		c := start(t, "127.0.0.1", "-p", port, "-t", "tag_lat", "-n", "10")
		assert.Equal(t, 1, c.End(patience))
		assert.Contains(t, c.Err.String(), "it is UCX's own ucx_perftest")
	})
}
