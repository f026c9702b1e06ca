package shmem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

const sharedSize = 64 << 10

// child is the second process: it dials name, passes a segment and a wake pipe,
// waits for the parent to write and signal, says so, and stays until killed or
// hung up on.
func child(mode, name string) error {
	seg, err := Create("goucx-test", sharedSize)
	if err != nil {
		return err
	}
	ev, err := NewWakePipe()
	if err != nil {
		return err
	}
	c, err := Dial(name)
	if err != nil {
		return err
	}
	copy(seg.Bytes(), "from the child")
	if err := c.Send([]byte("hello"), seg.FD(), ev.Share()); err != nil {
		return err
	}
	if mode == "deaf" { // dies with the parent's message unread
		return c.Send([]byte("last words"))
	}
	if !await(ev.FD(), unix.POLLIN) || !ev.Drain() {
		return errors.New("no signal")
	}
	if got := seg.Bytes()[:15]; string(got) != "from the parent" {
		return fmt.Errorf("read %q", got)
	}
	if err := c.Send([]byte("seen")); err != nil {
		return err
	}
	if !await(c.FD(), unix.POLLIN) {
		return errors.New("parent stays")
	}
	if _, _, err := c.Recv(make([]byte, 8)); err != io.EOF {
		return fmt.Errorf("want EOF, got %w", err)
	}
	return nil
}

func recvWait(t *testing.T, c *Conn) (string, []int) {
	t.Helper()
	require.True(t, await(c.FD(), unix.POLLIN))
	buf := make([]byte, 64)
	n, fds, err := c.Recv(buf)
	require.NoError(t, err)
	return string(buf[:n]), fds
}

// meet starts the child and takes what it passes.
func meet(t *testing.T, mode string) (pid int, c *Conn, seg *Segment, ev *WakeWriter) {
	t.Helper()
	name := abstractName()
	l, err := Listen(name)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	cmd := startChild(t, mode, name)
	c = acceptWait(t, l)
	msg, fds := recvWait(t, c)
	require.Equal(t, "hello", msg)
	require.Len(t, fds, 2)
	for _, fd := range fds {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		require.NoError(t, err)
		assert.NotZero(t, flags&unix.FD_CLOEXEC, "descriptor %d survives exec", fd)
	}
	seg, err = Map(fds[0], sharedSize)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, seg.Close()) })
	ev, err = OpenWakeWriter(fds[1])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ev.Close()) })
	require.Equal(t, "from the child", string(seg.Bytes()[:14]))
	return cmd.Process.Pid, c, seg, ev
}

func TestTwoProcessesShareMemory(t *testing.T) {
	pid, c, seg, ev := meet(t, "share")
	cred, err := c.Peer()
	require.NoError(t, err)
	assert.Equal(t, Cred{PID: pid, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}, cred)
	require.NoError(t, seg.CloseFD(), "the mapping must outlive its descriptor")
	copy(seg.Bytes(), "from the parent")
	require.NoError(t, ev.Signal())
	msg, fds := recvWait(t, c)
	assert.Equal(t, "seen", msg)
	assert.Empty(t, fds)
}

func TestKilledPeerIsNoticed(t *testing.T) {
	pid, c, seg, _ := meet(t, "share")
	pidfd, err := c.PeerPidfd()
	if errors.Is(err, ucs.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer CloseFDs(pidfd)
	fallback, err := c.openPeer(c.FD())
	require.NoError(t, err)
	defer CloseFDs(fallback)
	p := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}, {Fd: int32(fallback), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	require.NoError(t, err)
	require.Zero(t, n, "alive, but the pidfd says dead")

	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	assert.True(t, await(pidfd, unix.POLLIN), "pidfd")
	assert.True(t, await(fallback, unix.POLLIN), "pidfd by process id")
	require.True(t, await(c.FD(), unix.POLLIN))
	_, _, err = c.Recv(make([]byte, 8))
	assert.Equal(t, io.EOF, err)
	assert.ErrorIs(t, c.Send([]byte("x")), unix.EPIPE)
	_, err = c.openPeer(c.FD())
	assert.ErrorIs(t, err, unix.ESRCH, "a reused process id must not be taken for the peer")
	assert.Equal(t, "from the child", string(seg.Bytes()[:14]), "the memory outlives its maker")
}

func TestLastWordsOfAPeerThatDidNotRead(t *testing.T) {
	_, c, _, _ := meet(t, "deaf")
	_ = c.Send([]byte("unread")) // may meet a peer that is gone already
	msg, _ := recvWait(t, c)
	assert.Equal(t, "last words", msg)
	require.True(t, await(c.FD(), unix.POLLIN))
	_, _, err := c.Recv(make([]byte, 8))
	assert.Equal(t, io.EOF, err)
}

func TestCopyBetweenProcesses(t *testing.T) {
	src := bytes.Repeat([]byte("0123456789abcdef"), 70_000)
	dst := make([]byte, len(src))
	n, err := ProcessRead(os.Getpid(), dst, address(src))
	if errors.Is(err, ucs.ErrUnsupported) || errors.Is(err, unix.EPERM) {
		t.Skip(err)
	}
	require.NoError(t, err)
	assert.Equal(t, len(src), n)
	assert.Equal(t, src, dst)

	clear(dst)
	n, err = ProcessWrite(os.Getpid(), src, address(dst))
	require.NoError(t, err)
	assert.Equal(t, len(src), n)
	assert.Equal(t, src, dst)

	n, err = ProcessRead(os.Getpid(), nil, 0)
	assert.NoError(t, err)
	assert.Zero(t, n)
}

func TestCopyEndsAtAHole(t *testing.T) {
	page := unix.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	require.NoError(t, unix.Mprotect(mem[2*page:], unix.PROT_NONE))
	buf := make([]byte, 4*page)
	n, err := ProcessRead(os.Getpid(), buf, address(mem))
	if errors.Is(err, ucs.ErrUnsupported) || errors.Is(err, unix.EPERM) {
		t.Skip(err)
	}
	assert.ErrorIs(t, err, unix.EFAULT)
	assert.LessOrEqual(t, n, 2*page)
	_, err = ProcessWrite(os.Getpid(), buf, 8)
	assert.ErrorIs(t, err, unix.EFAULT)
}
