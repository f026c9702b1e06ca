//go:build linux

package test

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucp"
)

// TestGarbageOnSockets: what strangers say to a process's sockets, while it is
// busy with others, disturbs nobody and stays nowhere.
func TestGarbageOnSockets(t *testing.T) {
	s := open(t, ucp.ThreadSingle)
	v, key := startCollector(t, s)
	requireAlive(t, s, v, 1)
	waitApart(t, s, v.p)
	sockets := listening(t, v.p)
	require.Len(t, sockets, 2, "the worker's and the key server's")
	before := descriptorsAtRest(t, v.p)

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	done := make(chan struct{})
	go func() {
		defer close(done)
		rng := rand.New(rand.NewPCG(seed, 1))
		for range 1500 {
			for _, name := range sockets {
				stranger(t, rng, name)
			}
		}
	}()
	e := s.dial(t, v.address)
	push, ctx, sent := pusher(e, 2), bounded(t), 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		require.NoError(t, ucp.WaitAll(ctx, push(50)...))
		k, err := s.unpack(e, key)
		require.NoError(t, err)
		require.NoError(t, k.Close())
		sent += 50
	}
	v.p.say(sent + pushes)
	until(t, func() bool { return len(v.p.lines) > 0 }, s.w.Progress)
	t.Logf("3000 strangers; %s", v.p.hear())
	require.NoError(t, e.Close())
	waitApart(t, s, v.p)
	require.Eventually(t, func() bool { return descriptors(t, v.p) <= before }, patience, 10*time.Millisecond,
		"descriptors of the process: %d before", before)
}

// waitApart waits until the process has no connection any more.
func waitApart(t testing.TB, s *node, p *process) {
	t.Helper()
	until(t, func() bool { return len(maps(t, pidOf(p), "goucx-pair")) == 0 }, s.progressLong)
}

// progressLong is a pass between costly looks.
func (n *node) progressLong() int {
	for range 1000 {
		n.w.Progress()
	}
	return 0
}

// listening gives the names of a process's listening sockets.
func listening(t testing.TB, p *process) (names []string) {
	t.Helper()
	dir := "/proc/" + pidOf(p) + "/fd/"
	fds, err := os.ReadDir(dir)
	require.NoError(t, err)
	inodes := make(map[string]bool)
	for _, fd := range fds {
		if to, err := os.Readlink(dir + fd.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
			inodes[strings.Trim(to, "socket:[]")] = true
		}
	}
	table, err := os.ReadFile("/proc/net/unix")
	require.NoError(t, err)
	const flagListen, colFlags, colInode, colPath = "00010000", 3, 6, 7
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > colPath && f[colFlags] == flagListen && inodes[f[colInode]] {
			names = append(names, f[colPath])
		}
	}
	return names
}

func descriptors(t testing.TB, p *process) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/" + pidOf(p) + "/fd")
	require.NoError(t, err)
	return len(fds)
}

// descriptorsAtRest returns the number of a process's open descriptors once it has
// stayed the same for a while: a process that just took a connection down may
// still be closing some.
func descriptorsAtRest(t testing.TB, p *process) int {
	t.Helper()
	n, same := descriptors(t, p), 0
	require.Eventually(t, func() bool {
		now := descriptors(t, p)
		if same++; now != n {
			n, same = now, 0
		}
		return same == 20
	}, patience, 5*time.Millisecond)
	return n
}

// stranger connects, says something, perhaps with descriptors, and leaves.
func stranger(t testing.TB, rng *rand.Rand, name string) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if !assert.NoError(t, err) {
		return
	}
	defer unix.Close(fd) //nolint:errcheck // a socket of our own
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		assert.ErrorIs(t, err, unix.EAGAIN, "the backlog may be full for a moment")
		return
	}
	for range rng.IntN(4) {
		var oob []byte
		if rng.IntN(2) == 0 {
			fds := props(t, rng)
			oob = unix.UnixRights(fds...)
			defer closeAll(fds)
		}
		_ = unix.Sendmsg(fd, nonsense(rng), oob, nil, 0) // it may have been hung up on
	}
}

// nonsense is noise, or something like a message with noise in it.
func nonsense(rng *rand.Rand) []byte {
	b := make([]byte, rng.IntN(300))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	const helloMagic, askMagic = 0x78637567, 0x51585547
	switch rng.IntN(4) {
	case 0:
		b = append(b, make([]byte, 28)...)
		binary.LittleEndian.PutUint32(b, helloMagic)
		binary.LittleEndian.PutUint16(b[4:], 1)
		b[6] = byte(rng.IntN(7))
		binary.LittleEndian.PutUint32(b[20:], 1<<rng.IntN(32))
	case 1:
		b = append(b, make([]byte, 40)...)[:40]
		binary.LittleEndian.PutUint32(b, askMagic)
		copy(b[4:8], []byte{1, byte(rng.IntN(3)), 0, 0})
		clear(b[28:32])
	}
	return b
}

// props are descriptors that no honest peer sends.
func props(t testing.TB, rng *rand.Rand) (fds []int) {
	for range 1 + rng.IntN(4) {
		var fd int
		var err error
		switch rng.IntN(3) {
		case 0:
			fd, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		case 1:
			fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
		default:
			if fd, err = unix.MemfdCreate("stranger", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err == nil {
				err = unix.Ftruncate(fd, int64(rng.IntN(1<<16)))
			}
		}
		if assert.NoError(t, err) {
			fds = append(fds, fd)
		}
	}
	return fds
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
