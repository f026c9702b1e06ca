package shmem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// childMode names, in the environment of a re-executed test binary, what it is
// to do instead of testing.
const childMode = "GOUCX_SHMEM_CHILD"

// patience bounds every wait for another process.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		if err := child(mode, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "child", mode, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// startChild runs this test binary as a second process. It is killed when the
// test ends, if it still lives.
func startChild(t *testing.T, mode, arg string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	start := func(name string, args ...string) (*exec.Cmd, error) {
		c := exec.CommandContext(ctx, name, args...)
		c.Env = append(os.Environ(), childMode+"="+mode)
		c.Stderr = os.Stderr
		return c, c.Start()
	}
	c, err := start(os.Args[0], arg)
	if errors.Is(err, syscall.ENOEXEC) { // cross-built and emulated by hand
		c, err = start("qemu-aarch64", os.Args[0], arg)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		_ = c.Wait() // most are killed: their state is not of interest
	})
	return c
}

func abstractName() string { return "@goucx-test-" + rand.Text() }

// await blocks until fd is ready for events; false after patience.
func await(fd int, events int16) bool {
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		p := []unix.PollFd{{Fd: int32(fd), Events: events}}
		if n, err := unix.Poll(p, int(time.Until(deadline).Milliseconds())); n > 0 && err == nil {
			return true
		}
	}
	return false
}

func acceptWait(t *testing.T, l *Listener) *Conn {
	t.Helper()
	require.True(t, await(l.FD(), unix.POLLIN), "nobody dialled")
	c, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// connected gives both ends of a connection within this process.
func connected(t *testing.T) (a, b *Conn) {
	t.Helper()
	name := abstractName()
	l, err := Listen(name)
	require.NoError(t, err)
	a, err = Dial(name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	b = acceptWait(t, l)
	require.NoError(t, l.Close())
	return a, b
}

func openFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}
