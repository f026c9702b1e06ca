package shmem

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/suitetest"

	"github.com/goucx/goucx/ucs"
)

func TestListenOnPath(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s")
	l, err := Listen(name)
	require.NoError(t, err)
	st, err := os.Stat(name)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	_, err = Listen(name)
	assert.ErrorIs(t, err, unix.EADDRINUSE)
	c, err := Dial(name)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	assert.NoFileExists(t, name)
	_, err = Dial(name)
	assert.ErrorIs(t, err, unix.ENOENT)
}

func TestListenNames(t *testing.T) {
	for _, name := range []string{"", "@"} {
		_, err := Listen(name)
		assert.ErrorIs(t, err, ucs.ErrInvalid)
		_, err = Dial(name)
		assert.ErrorIs(t, err, ucs.ErrInvalid)
	}
	_, err := Listen("@" + strings.Repeat("x", 200))
	assert.ErrorIs(t, err, unix.EINVAL)
	name := abstractName()
	l, err := Listen(name)
	require.NoError(t, err)
	_, err = Listen(name)
	assert.ErrorIs(t, err, unix.EADDRINUSE)
	_, err = l.Accept()
	assert.Equal(t, ErrWouldBlock, err)
	require.NoError(t, l.Close())
	_, err = l.Accept()
	assert.ErrorIs(t, err, ucs.ErrClosed)
	_, err = Dial(name)
	assert.ErrorIs(t, err, unix.ECONNREFUSED)
}

func TestDialFullBacklogWouldBlock(t *testing.T) {
	name := abstractName()
	h, err := newSocket(name)
	require.NoError(t, err)
	defer func() { require.NoError(t, h.close()) }()
	require.NoError(t, unix.Bind(h.num(), &unix.SockaddrUnix{Name: name}))
	require.NoError(t, unix.Listen(h.num(), 1))
	for range 8 {
		var c *Conn
		if c, err = Dial(name); err != nil {
			break
		}
		defer func() { require.NoError(t, c.Close()) }()
	}
	assert.Equal(t, ErrWouldBlock, err)
}

func TestMessagesKeepTheirBounds(t *testing.T) {
	a, b := connected(t)
	buf := make([]byte, 16)
	_, _, err := b.Recv(buf)
	assert.Equal(t, ErrWouldBlock, err)
	require.NoError(t, a.Send([]byte("one"))) // from either end
	require.NoError(t, a.Send([]byte("two")))
	for _, want := range []string{"one", "two"} {
		n, fds, err := b.Recv(buf)
		require.NoError(t, err)
		assert.Equal(t, want, string(buf[:n]))
		assert.Empty(t, fds)
	}
	assert.ErrorIs(t, a.Send(nil), ucs.ErrInvalid)
	_, _, err = b.Recv(nil)
	assert.ErrorIs(t, err, ucs.ErrInvalid)
}

func TestSendWouldBlockThenGoesOn(t *testing.T) {
	a, b := connected(t)
	msg := make([]byte, 4096)
	sent := 0
	for ; sent < 100_000; sent++ {
		if err := a.Send(msg); err != nil {
			require.Equal(t, ErrWouldBlock, err)
			break
		}
	}
	require.NotZero(t, sent)
	for range sent {
		n, _, err := b.Recv(msg)
		require.NoError(t, err)
		require.Equal(t, 4096, n)
	}
	assert.NoError(t, a.Send(msg))
	assert.ErrorIs(t, a.Send(make([]byte, 64<<20)), unix.EMSGSIZE)
}

func TestRecvRefusesManyDescriptors(t *testing.T) {
	suitetest.SkipEmulated(t)
	a, b := connected(t)
	many := make([]int, MaxFDs+1)
	for i := range many {
		many[i] = a.FD()
	}
	assert.ErrorIs(t, a.Send([]byte("x"), many...), ErrDescriptors)
	before := openFDs(t)
	for _, n := range []int{MaxFDs + 1, 3 * MaxFDs} {
		for len(many) < n {
			many = append(many, a.FD())
		}
		oob := unix.UnixRights(many[:n]...)
		require.NoError(t, unix.Sendmsg(a.FD(), []byte("x"), oob, nil, 0))
		_, fds, err := b.Recv(make([]byte, 8))
		assert.ErrorIs(t, err, ErrDescriptors)
		assert.Empty(t, fds)
		assert.Equal(t, before, openFDs(t), "what came must be closed")
	}
	require.NoError(t, a.Send([]byte("x"), many[:MaxFDs]...))
	_, fds, err := b.Recv(make([]byte, 8))
	require.NoError(t, err)
	assert.Len(t, fds, MaxFDs)
	CloseFDs(fds...)
}

func TestRecvRefusesLongMessage(t *testing.T) {
	a, b := connected(t)
	before := openFDs(t)
	require.NoError(t, a.Send([]byte("too long for it"), a.FD()))
	_, fds, err := b.Recv(make([]byte, 8))
	assert.ErrorIs(t, err, ucs.ErrTruncated)
	assert.Empty(t, fds)
	assert.Equal(t, before, openFDs(t))
}

func TestHangUp(t *testing.T) {
	a, b := connected(t)
	require.NoError(t, b.Send([]byte("never read")))
	require.NoError(t, a.Send([]byte("queued")))
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	buf := make([]byte, 16)
	n, _, err := b.Recv(buf)
	require.NoError(t, err, "what was sent before the hang-up is received")
	assert.Equal(t, "queued", string(buf[:n]))
	for range 2 {
		_, _, err = b.Recv(buf)
		assert.Equal(t, io.EOF, err)
	}
	assert.ErrorIs(t, b.Send([]byte("x")), unix.EPIPE)
	assert.ErrorIs(t, a.Send([]byte("x")), ucs.ErrClosed)
	_, _, err = a.Recv(buf)
	assert.ErrorIs(t, err, ucs.ErrClosed)
	_, err = a.Peer()
	assert.ErrorIs(t, err, ucs.ErrClosed)
	_, err = a.PeerPidfd()
	assert.ErrorIs(t, err, ucs.ErrClosed)
}

// TestRecvWithoutRoomForDescriptors: the error names the limit on open files, and what came is closed.
func TestRecvWithoutRoomForDescriptors(t *testing.T) {
	suitetest.SkipEmulated(t)
	a, b := connected(t)
	before := openFDs(t)
	next, err := unix.FcntlInt(uintptr(a.FD()), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Close(next))
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	require.NoError(t, a.Send([]byte("x"), a.FD(), a.FD(), a.FD()))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next) + 1, Max: old.Max}))
	_, fds, err := b.Recv(make([]byte, 8))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	require.ErrorIs(t, err, ErrDescriptors)
	assert.ErrorContains(t, err, "ulimit -n")
	assert.Empty(t, fds)
	assert.Equal(t, before, openFDs(t))
}
