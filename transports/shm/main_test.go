package shm

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait for another process or goroutine, against hanging.
const patience = time.Minute

// roles are what this test binary does as a second process: it is started again
// with roleEnv set. A role talks with the test by lines on stdin and stdout.
func roles() map[string]func(say func(string), hear func() string) {
	return map[string]func(say func(string), hear func() string){
		"receive":  roleReceive,
		"send":     roleSend,
		"sendOnce": roleSendOnce,
		"memory":   roleMemory,
		"sleep":    roleSleep,
	}
}

const roleEnv = "GOUCX_SHM_TEST_ROLE"

func TestMain(m *testing.M) {
	name := os.Getenv(roleEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	in := bufio.NewScanner(os.Stdin)
	roles()[name](
		func(s string) { fmt.Println(s) },
		func() string {
			if !in.Scan() {
				os.Exit(0) // the test is gone
			}
			return in.Text()
		})
}

// process is a second process in some role.
type process struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(t testing.TB, role string) *process {
	t.Helper()
	p, err := tryStart(t, role, nil)
	require.NoError(t, err)
	return p
}

// tryStart starts a process with attributes (another user, other namespaces)
// that the system may refuse. The binary is named through /proc, so that
// another user need not be able to reach its directory.
func tryStart(t testing.TB, role string, attr *syscall.SysProcAttr) (*process, error) {
	t.Helper()
	args := []string{"/proc/self/exe"}
	if runtime.GOARCH == "arm64" && os.Getenv("GOUCX_QEMU") != "" {
		args = []string{"qemu-aarch64", os.Args[0]}
	}
	p := &process{t: t, cmd: exec.Command(args[0], args[1:]...)}
	p.cmd.Env = append(os.Environ(), roleEnv+"="+role)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = attr
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(p.kill)
	return p, nil
}

func (p *process) say(s string) {
	_, err := io.WriteString(p.in, s+"\n")
	require.NoError(p.t, err)
}

// hear waits for the next line; a process that ends or is silent fails the test.
func (p *process) hear() string {
	p.t.Helper()
	return p.hearWithin(patience)
}

func (p *process) hearWithin(d time.Duration) string {
	p.t.Helper()
	got := make(chan string, 1)
	go func() {
		if p.out.Scan() {
			got <- p.out.Text()
		}
		close(got)
	}()
	select {
	case s, ok := <-got:
		require.True(p.t, ok, "second process ended")
		return strings.TrimSpace(s)
	case <-time.After(d):
		p.t.Fatal("second process is silent")
		return ""
	}
}

// kill ends the process at once, as kill -9 does.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()
	}
}
