package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs/stats/live"
)

// hangMode makes the test binary a program that waits for messages, for a while
// with progress and then without.
const hangMode = "UCX_INFO_TEST_HANG"

// Ways to hang.
const (
	hangsComputing = "computing" // a loop of the program's own
	hangsBlocked   = "blocked"   // a channel that nobody sends to
	hangsWaiting   = "waiting"   // progresses, but the message never comes
)

// hang is the program. It says when it hangs.
func hang(how string) error {
	c, err := ucp.Open(ucp.Config{Providers: transports.All()})
	if err != nil {
		return err
	}
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	if err != nil {
		return err
	}
	e, err := w.NewEndpoint(w.Address(), ucp.EndpointConfig{Eager: true})
	if err != nil {
		return err
	}
	e.TagSend([]byte("never received"), 1)
	for range 2 {
		w.TagRecv(make([]byte, 64), 0xdead, ^ucp.Tag(0))
	}
	for began := time.Now(); time.Since(began) < time.Second; { // long enough for a summary with all that
		w.Progress()
	}
	os.Stdout.WriteString("hangs\n")
	switch how {
	case hangsComputing:
		for n := 0; ; n++ {
			if n < 0 {
				return nil
			}
		}
	case hangsBlocked:
		<-make(chan struct{})
	}
	_, err = w.TagRecv(nil, 0xdead, ^ucp.Tag(0)).Wait(context.Background())
	return err
}

// hanging starts a program that hangs so, showing itself in dir.
func hanging(t *testing.T, dir, how string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hangMode+"="+how, "UCX_STATS_DEST=unix:"+dir, "UCX_TLS=self,shm", "GOMAXPROCS=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hangs\n", line)
	return cmd
}

// pages gives what --live --json prints.
func pages(t *testing.T, args ...string) []liveProgram {
	t.Helper()
	var doc struct {
		Live []liveProgram `json:"live"`
	}
	require.NoError(t, json.Unmarshal([]byte(info(t, append([]string{"--json"}, args...)...)), &doc))
	return doc.Live
}

// A program that hangs is looked into, whatever it hangs in.
func TestLiveHung(t *testing.T) {
	for how, progressed := range map[string]bool{hangsComputing: false, hangsBlocked: false, hangsWaiting: true} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			cmd := hanging(t, dir, how)
			pid := strconv.Itoa(cmd.Process.Pid)

			ps := pages(t, "--live", dir)
			require.Len(t, ps, 1)
			p := ps[0].Page
			require.NotNil(t, p, ps[0].Error)
			assert.Equal(t, cmd.Process.Pid, p.PID)
			require.Len(t, p.Workers, 1)
			w := p.Workers[0]
			assert.Equal(t, progressed, w.Responsive)
			receives := 2
			if progressed {
				receives = 3
			}
			require.Len(t, w.Summary.Requests, 1)
			r := w.Summary.Requests[0]
			assert.Equal(t, "tag receive", r.Op)
			assert.Equal(t, "posted", r.State)
			assert.Equal(t, "0xdead", r.Tag)
			assert.Equal(t, receives, r.Count)
			assert.Positive(t, r.OldestSeconds)
			assert.Equal(t, 1, w.Summary.Unexpected)
			assert.Equal(t, 1, w.Summary.Connected)
			assert.Positive(t, w.Counters["ucp.unexpected"])

			text := info(t, "--live", ps[0].Path)
			for _, want := range []string{
				"Program " + pid + ": " + os.Args[0], "UCX_TLS=self,shm (environment UCX_TLS)", "connected, self/memory0",
				"x tag receive, posted, ", "with tag 0xdead", "unexpected messages: 1,", "ucp.unexpected: 1",
			} {
				assert.Contains(t, text, want)
			}
			assert.Equal(t, !progressed, strings.Contains(text, "is not progressed"), text)

			t.Setenv("UCX_STATS_DEST", "unix:"+dir)
			assert.Contains(t, info(t, "--live", pid), "Program "+pid+": ")
			list := info(t, "--live")
			assert.Contains(t, list, "# "+pid+": "+os.Args[0]+": workers: 1, requests pending: "+strconv.Itoa(receives))
			assert.Equal(t, !progressed, strings.Contains(list, "is not progressed"), list)
		})
	}
}

// A stopped program cannot answer, which is told; a killed one leaves nothing
// for long.
func TestLiveStoppedAndKilled(t *testing.T) {
	dir := t.TempDir()
	cmd := hanging(t, dir, hangsBlocked)
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	list := info(t, "--live", dir, "--json")
	assert.Contains(t, list, "no answer within 3s: timed out: it is stopped")
	_, _, err := try("--live", dir)
	require.ErrorContains(t, err, "it is stopped")

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Len(t, left, 1, "a killed program cannot clean up")
	assert.Equal(t, "# No running program shows itself; start one with UCX_STATS_DEST=unix\n", info(t, "--live", dir))
	left, err = filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestLiveRefuses(t *testing.T) {
	t.Setenv("UCX_STATS_DEST", "unix:"+t.TempDir())
	for args, want := range map[string]string{
		"--live 1":              "that program shows nothing in",
		"--live /nonexistent":   "no pid, and no such socket or directory",
		"--live 1 2":            `unexpected argument "2"`,
		"--live=1 2":            `unexpected argument "2"`,
		"--live " + os.DevNull:  "read " + os.DevNull,
		"-v 1":                  `unexpected argument "1"`,
		"--live -c --json -s":   "not --system",
		"--live=" + t.TempDir(): "",
		"--live --json":         "",
		"--live all":            "",
	} {
		t.Run(args, func(t *testing.T) {
			_, _, err := try(strings.Fields(args)...)
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, want)
		})
	}
}

// What a page says cannot command a terminal.
func TestLiveTextIsPlain(t *testing.T) {
	tool := newTool(&options{}, nil, os.Stderr)
	evil := "a\x1b[31m\nb\x07"
	tool.livePage(&live.Page{
		Command: []string{evil}, Host: evil, GoVersion: evil, Settings: []live.Setting{{Name: evil, Value: evil, Origin: evil}},
		Workers: []live.Worker{{Name: evil, Mode: evil, Counters: map[string]uint64{evil: 1}, Summary: live.Summary{
			Peers:    []live.Endpoint{{Peer: evil, State: evil, Error: evil, Lanes: []live.Lane{{Name: evil, Error: evil + evil}}}},
			Requests: []live.Requests{{Op: evil, Peer: evil, Lane: evil, State: evil, Tag: evil}},
		}}},
	})
	assert.NotContains(t, tool.out.String(), "\x1b")
	assert.NotContains(t, tool.out.String(), "\x07")
	for line := range strings.Lines(tool.out.String()) {
		assert.True(t, strings.HasPrefix(line, "#"), line)
	}
	assert.Contains(t, tool.out.String(), "Program 0: a?[31m?b?\n")
}
