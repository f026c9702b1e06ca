//go:build linux

package test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	roleEnv = "GOUCX_TEST_ROLE"
	longEnv = "GOUCX_TEST_LONG"
	tlsEnv  = "UCX_TLS"

	// patience bounds every wait for something that a busy machine does late. It
	// is no measure of anything.
	patience = 30 * time.Second
)

// roles are what this binary does as a second process.
var roles = map[string]func(*parent){
	"copier":    roleCopier,
	"host":      roleHost,
	"lender":    roleLender,
	"meet":      roleMeet,
	"member":    roleMember,
	"mortal":    roleMortal,
	"peer":      rolePeer,
	"mixer":     roleMixer,
	"scribbler": roleScribbler,
	"sender":    roleSender,
	"streamer":  roleStreamer,
	"side":      roleSide,
	"sizes":     roleSizes,
	"survivor":  roleSurvivor,

	"victim":  roleVictim,
	"flood":   roleFlood,
	"forge":   roleForge,
	"mutate":  roleMutate,
	"sockets": roleSockets,
	"copies":  roleCopies,
	"blocker": roleBlocker,
	"list":    roleList,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(denyEnv); name != "" {
		executeDenied(name)
	}
	if name := os.Getenv(roleEnv); name != "" {
		roles[name](newParent())
		os.Exit(0)
	}
	warmUp()
	code := m.Run()
	removeCommands()
	removeFaulty()
	os.Exit(code)
}

// withinHost leaves out the transports between hosts, which would serve where the
// test wants to see what shm does, or refuses.
func withinHost(t testing.TB) { t.Setenv(tlsEnv, "self,shm") }

func long() bool { return os.Getenv(longEnv) != "" }

// parent is the test as a second process sees it.
type parent struct{ lines chan string }

// newParent reads what the test says. A second process whose test is gone ends,
// whatever it is doing.
func newParent() *parent {
	p := &parent{make(chan string, 1024)}
	go func() {
		in := bufio.NewScanner(os.Stdin)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			p.lines <- in.Text()
		}
		os.Exit(0)
	}()
	return p
}

func (p *parent) say(a ...any) { fmt.Println(a...) }

func (p *parent) hear() string { return <-p.lines }

// heard is hear where it need not wait.
func (p *parent) heard() (string, bool) {
	select {
	case s := <-p.lines:
		return s, true
	default:
		return "", false
	}
}

// must ends a second process whose error is not part of the test.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s, process %d: %v\n", os.Getenv(roleEnv), os.Getpid(), err)
		os.Exit(1)
	}
}

// process is a second process as the test sees it.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

// start starts a role; it is killed, by its id, when the test ends.
func start(t testing.TB, role string, change ...func(*exec.Cmd)) *process {
	t.Helper()
	p, err := tryStart(t, role, change...)
	require.NoError(t, err)
	return p
}

// tryStart is start where the system may refuse. The binary is named through
// /proc, so that another user need not be able to reach its directory.
func tryStart(t testing.TB, role string, change ...func(*exec.Cmd)) (*process, error) {
	t.Helper()
	p := &process{t: t, cmd: exec.Command("/proc/self/exe"), lines: make(chan string, 1024)}
	p.cmd.Env = append(os.Environ(), roleEnv+"="+role)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for _, c := range change {
		c(p.cmd)
	}
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(p.kill)
	go func() {
		s := bufio.NewScanner(out)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	return p, nil
}

func (p *process) say(a ...any) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.in, a...)
	require.NoError(p.t, err)
}

// hear waits for the next line; a process that ends or is silent fails the test.
func (p *process) hear() string {
	p.t.Helper()
	select {
	case s, ok := <-p.lines:
		require.True(p.t, ok, "process %d ended", p.cmd.Process.Pid)
		return s
	case <-time.After(patience):
		p.t.Fatalf("process %d is silent", p.cmd.Process.Pid)
		return ""
	}
}

// expect waits for that very line.
func (p *process) expect(line string) {
	p.t.Helper()
	require.Equal(p.t, line, p.hear())
}

// scan waits for a line and reads its words.
func (p *process) scan(into ...any) {
	p.t.Helper()
	line := p.hear()
	_, err := fmt.Sscan(line, into...)
	require.NoError(p.t, err, "%q", line)
}

// number reads a line that is a number.
func (p *process) number() (n int) {
	p.t.Helper()
	p.scan(&n)
	return n
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// ends waits until the process has ended by itself, and ended well.
func (p *process) ends() {
	p.t.Helper()
	deadline := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	for s := range p.lines { // Wait closes the pipe, so it is read to its end first
		p.t.Logf("process %d said %q", p.cmd.Process.Pid, s)
	}
	require.NoError(p.t, p.cmd.Wait())
	deadline.Stop()
}

// kill ends the process at once, as kill -9 does, and waits until it is gone.
func (p *process) kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	for range p.lines {
	}
	_ = p.cmd.Wait() // says that it was killed
}

// until progresses what there is until cond holds.
func until(t testing.TB, cond func() bool, progress func() int) {
	t.Helper()
	limit := time.Now().Add(patience)
	for !cond() {
		if progress() == 0 && time.Now().After(limit) {
			t.Fatal("it never came")
		}
	}
}

// maps lists what a process has mapped that contains any of the words.
func maps(t testing.TB, pid string, words ...string) (found []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/" + pid + "/maps")
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		for _, w := range words {
			if strings.Contains(line, w) {
				found = append(found, strings.TrimSpace(line))
			}
		}
	}
	return found
}
