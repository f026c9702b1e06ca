//go:build linux

package test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// commands, and the examples, are built once, without cgo as users build them.
var commands struct {
	sync.Once
	dir string
	err error
}

func buildCommands() {
	if commands.dir, commands.err = os.MkdirTemp("", "goucx-commands-"); commands.err != nil {
		return
	}
	c := exec.Command("go", "build", "-o", commands.dir, "./cmd/...", "./examples/...")
	c.Dir, c.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		commands.err = &buildError{string(out), err}
	}
}

type buildError struct {
	out string
	err error
}

func (e *buildError) Error() string { return e.err.Error() + "\n" + e.out }

func removeCommands() {
	if commands.dir != "" {
		_ = os.RemoveAll(commands.dir) // it lies where temporary files do
	}
}

// built gives the path of a command of ours.
func built(t testing.TB, name string) string {
	t.Helper()
	commands.Do(buildCommands)
	require.NoError(t, commands.err)
	return filepath.Join(commands.dir, name)
}

// command is a running command.
type command struct {
	t        testing.TB
	cmd      *exec.Cmd
	out, err text
	done     chan struct{}
}

// text is what a command has written so far.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// run starts a command; it is killed, by its id, when the test ends.
func run(t testing.TB, path string, args ...string) *command {
	t.Helper()
	return runIn(t, os.Environ(), path, args...)
}

// runIn is run with an environment.
func runIn(t testing.TB, env []string, path string, args ...string) *command {
	t.Helper()
	c := &command{t: t, cmd: exec.Command(path, args...), done: make(chan struct{})}
	c.cmd.Env, c.cmd.Stdout, c.cmd.Stderr = env, &c.out, &c.err
	require.NoError(t, c.cmd.Start())
	go func() {
		_ = c.cmd.Wait()
		close(c.done)
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // it may have ended
		<-c.done
	})
	return c
}

// end waits for the command and gives its exit code.
func (c *command) end(within time.Duration) int {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(within):
		require.Fail(c.t, "the command does not end", "%v\n%s\n%s", c.cmd.Args, &c.out, &c.err)
	}
	return c.cmd.ProcessState.ExitCode()
}

// says waits until the command has written something to stdout.
func (c *command) says(what string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return strings.Contains(c.out.String(), what) }, patience, 5*time.Millisecond,
		"%v never said %q", c.cmd.Args, what)
}

// listens waits until somebody listens on the port.
func listens(t testing.TB, port string) {
	t.Helper()
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	entry := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A `, n))
	require.Eventually(t, func() bool {
		v4, err4 := os.ReadFile("/proc/net/tcp")
		v6, err6 := os.ReadFile("/proc/net/tcp6")
		return err4 == nil && entry.Match(v4) || err6 == nil && entry.Match(v6)
	}, patience, 5*time.Millisecond, "nobody listens on port %s", port)
}

// freePort gives a port that nobody listened on a moment ago.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
