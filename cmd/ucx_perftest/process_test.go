package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// commandEnv makes this test binary the command itself.
const commandEnv = "GOUCX_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandEnv) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// process is a running command.
type process struct {
	t        testing.TB
	cmd      *exec.Cmd
	out, err *buffer
	done     chan struct{}
}

// buffer is what a process has written so far.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start runs the command; it is killed when the test ends.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), out: &buffer{}, err: &buffer{}, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), commandEnv+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	require.NoError(t, p.cmd.Start())
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

// end waits for the process and gives its exit code.
func (p *process) end(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		require.Fail(p.t, "process does not end", "%v\nstdout:\n%s\nstderr:\n%s", p.cmd.Args, p.out, p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// says waits until the process has written text to stdout.
func (p *process) says(text string) {
	p.t.Helper()
	p.writes(p.out, text)
}

// tells waits until the process has written text to stderr.
func (p *process) tells(text string) {
	p.t.Helper()
	p.writes(p.err, text)
}

func (p *process) writes(to *buffer, text string) {
	p.t.Helper()
	for range 3000 {
		if strings.Contains(to.String(), text) {
			return
		}
		select {
		case <-p.done:
			if strings.Contains(to.String(), text) {
				return
			}
			require.Fail(p.t, "process ended", "before it said %q\nstdout:\n%s\nstderr:\n%s", text, p.out, p.err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	require.Fail(p.t, "process is silent", "it never said %q\nstdout:\n%s\nstderr:\n%s", text, p.out, p.err)
}

// freePort gives a port that nobody listened on a moment ago.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// patience bounds what a loaded machine may take for a short run.
const patience = 60 * time.Second

// both runs a server and a client and gives the outputs of both; either must
// end well.
func both(t testing.TB, server, client []string) (s, c *process) {
	t.Helper()
	port := freePort(t)
	s = start(t, append([]string{"-p", port}, server...)...)
	c = start(t, append([]string{"127.0.0.1", "-p", port}, client...)...)
	code := c.end(patience)
	require.Zero(t, code, "client: %s\nserver: %s", c.err, s.err)
	require.Zero(t, s.end(patience), "server: %s", s.err)
	return s, c
}

// command runs the command within this process.
func command(args ...string) (stdout, stderr string, err error) {
	var o, e bytes.Buffer
	err = run(args, &o, &e)
	return o.String(), e.String(), err
}

var _ io.Writer = (*buffer)(nil)
