package suitetest

import (
	"bytes"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Command is a running program and its output.
type Command struct {
	Cmd      *exec.Cmd
	Out, Err Text
	t        testing.TB
	done     chan struct{} // closed when it has ended
}

// Start starts cmd. It is killed, by its id, when the test ends.
func Start(t testing.TB, cmd *exec.Cmd) *Command {
	t.Helper()
	c := &Command{Cmd: cmd, t: t, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &c.Out, &c.Err
	require.NoError(t, cmd.Start())
	go func() {
		_ = cmd.Wait() // its state has the result
		close(c.done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-c.done
	})
	return c
}

// End waits for the program and returns its exit code.
func (c *Command) End(within time.Duration) int {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(within):
		require.Fail(c.t, "the program does not end", "%v\nstdout:\n%s\nstderr:\n%s", c.Cmd.Args, &c.Out, &c.Err)
	}
	return c.Cmd.ProcessState.ExitCode()
}

// Says waits until the program has written what to stdout.
func (c *Command) Says(what string) { c.t.Helper(); c.writes(&c.Out, what) }

// Tells waits until the program has written what to stderr.
func (c *Command) Tells(what string) { c.t.Helper(); c.writes(&c.Err, what) }

func (c *Command) writes(to *Text, what string) {
	c.t.Helper()
	limit := time.After(30 * time.Second)
	for ended := false; !strings.Contains(to.String(), what); {
		require.False(c.t, ended, "%v ended and did not write %q\nstdout:\n%s\nstderr:\n%s", c.Cmd.Args, what, &c.Out, &c.Err)
		select {
		case <-c.done:
			ended = true
		case <-limit:
			require.Fail(c.t, "the program is silent", "%v did not write %q\nstdout:\n%s\nstderr:\n%s", c.Cmd.Args, what, &c.Out, &c.Err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Text is what a program has written so far.
type Text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends b.
func (x *Text) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(b)
}

// String returns the text.
func (x *Text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// FreePort returns a TCP port that was unused a moment ago.
func FreePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
