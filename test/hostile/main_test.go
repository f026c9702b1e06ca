//go:build linux

package hostile

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	roleEnv = "GOUCX_HOSTILE_ROLE"
	// patience bounds the wait for what a busy machine does late.
	patience = 30 * time.Second
)

var flagSeed = flag.Uint64("hostile.seed", 0, "what strangers send; 0: random")

// roles are what this binary does as another process.
var roles = map[string]func(*parent){
	"victim":  roleVictim,
	"flood":   roleFlood,
	"forge":   roleForge,
	"mutate":  roleMutate,
	"sockets": roleSockets,
	"blocker": roleBlocker,
	"list":    roleList,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(roleEnv); name != "" {
		roles[name](newParent())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// spell is how long an attack lasts.
func spell(short time.Duration) time.Duration {
	if os.Getenv("GOUCX_TEST_LONG") != "" {
		return 10 * short
	}
	return short
}

func seedOf(t *testing.T) uint64 {
	seed := *flagSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	return seed
}

// parent is the test as another process sees it.
type parent struct{ lines chan string }

// newParent reads the lines of the test. The process exits when its test is gone.
func newParent() *parent {
	p := &parent{make(chan string, 64)}
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			p.lines <- in.Text()
		}
		os.Exit(0)
	}()
	return p
}

func (p *parent) say(a ...any) { fmt.Println(a...) }

func (p *parent) hear() string { return <-p.lines }

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

// process is another process as the test sees it.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

// start starts a role. The process is killed, by its id, when the test ends. The binary is
// named through /proc, so that another user need not reach its directory.
func start(t *testing.T, role string, change ...func(*exec.Cmd)) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command("/proc/self/exe"), lines: make(chan string, 64)}
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
	require.NoError(t, p.cmd.Start())
	t.Cleanup(p.kill)
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	return p
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
		require.FailNow(p.t, "silent", "process %d", p.cmd.Process.Pid)
		return ""
	}
}

func (p *process) kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	for range p.lines {
	}
	_ = p.cmd.Wait() // reports that it was killed
}

// number reads a line that is a number.
func (p *process) number() int {
	p.t.Helper()
	n, err := strconv.Atoi(p.hear())
	require.NoError(p.t, err)
	return n
}

// memory is the resident memory in bytes.
func (p *process) memory() int {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	require.NoError(p.t, err)
	return pages * os.Getpagesize()
}

func (p *process) descriptors() int {
	p.t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	return len(fds)
}
