package shm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/wireup/machine"
)

// withoutFDs runs f while this process can open no descriptor more.
func withoutFDs(t *testing.T, f func()) {
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	least := old
	least.Cur = 4
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &least))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	f()
}

// TestNoDescriptorsDoNotKeepASleeperAwake: a connection that cannot be accepted
// is left alone for a while, and taken when descriptors are back.
func TestNoDescriptorsDoNotKeepASleeperAwake(t *testing.T) {
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	e := connectTest(t, a, b)
	require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
	withoutFDs(t, func() {
		for b.acceptPausedUntil == 0 {
			b.Progress(64)
		}
		require.False(t, readable(t, b, 0), "the listener is not looked at")
		b.event.Drain()
		require.True(t, readable(t, b, time.Minute), "a sleeper wakes to try again")
	})
	until(t, func() bool { return rb.n == 1 }, a, b)
	require.Zero(t, b.acceptPausedUntil)
}

// TestGrowthWithoutDescriptors: whoever has none declines, and all goes on.
func TestGrowthWithoutDescriptors(t *testing.T) {
	d := newDuplex(t)
	d.ab.send(1)
	until(t, func() bool { return d.ab.e.M.Quiescent() && d.ba.e.M.Quiescent() && d.quiet() }, d.a, d.b)
	out := d.ab.e.M.TxPair()
	d.ab.e.proposePair(machine.EventMigrate, d.a.layout)
	require.True(t, d.ab.e.M.Migrating())
	withoutFDs(t, func() {
		for d.ab.e.M.Migrating() {
			d.ab.send(1)
			d.a.Progress(64)
			d.b.Progress(64)
		}
	})
	require.Equal(t, out, d.ab.e.M.TxPair(), "it stays where it was")
	d.ab.send(10)
	until(t, d.quiet, d.a, d.b)
}

// TestSocketsOfTheCrashedAreRemoved, those of the living and of others are not.
func TestSocketsOfTheCrashedAreRemoved(t *testing.T) {
	dir := t.TempDir()
	path := func(n byte) string {
		return filepath.Join(dir, socketPrefix+string([]byte{'0', '0' + n})+"00000000000000")
	}
	long := time.Now().Add(-time.Hour)
	for n := range byte(3) { // a file stays where a socket is closed without its listener
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path(n)}))
		require.NoError(t, unix.Close(fd))
	}
	require.NoError(t, os.Chtimes(path(0), long, long))
	require.NoError(t, os.Chtimes(path(1), long, long))
	require.NoError(t, os.Rename(path(1), filepath.Join(dir, "goucx-other")))
	alive, err := shmem.Listen(path(4))
	require.NoError(t, err)
	require.NoError(t, os.Chtimes(path(4), long, long))
	openWith(t, new(recorder), "UCX_SHM_SOCKET_DIR="+dir)
	require.NoFileExists(t, path(0))
	require.FileExists(t, filepath.Join(dir, "goucx-other"))
	require.FileExists(t, path(2), "it is young")
	require.FileExists(t, path(4))
	require.NoError(t, alive.Close())
}

// TestBudgetBelowOne is no reason to fall over.
func TestBudgetBelowOne(t *testing.T) {
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	e := connectTest(t, a, b)
	for range 20 {
		require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
	}
	until(t, func() bool { b.Progress(-1); b.Progress(0); return rb.n > 0 }, a)
	for range 100 {
		b.Progress(-1 << 40)
	}
	until(t, func() bool { return rb.n == 20 }, a, b)
}

// TestCloseWaitsForWhoCouldNotBeDialled: messages to a peer whose backlog is full
// reach it where it takes connections within the bound.
func TestCloseWaitsForWhoCouldNotBeDialled(t *testing.T) {
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	empty := fillBacklog(t, b)
	e := connectTest(t, a, b)
	require.Equal(t, ucs.OK, e.AMShort(1, 0, []byte("hello")))
	require.Equal(t, ucs.OK, e.status)
	done := make(chan error)
	go func() { done <- a.Close() }()
	empty()
	until(t, func() bool {
		select {
		case err := <-done:
			require.NoError(t, err)
			done = nil
		default:
		}
		return done == nil && (rb.n == 1 || len(rb.failures) > 0 || b.Len() == 0)
	}, b)
	if rb.n == 0 {
		t.Log("the receiver got no processor within the bound: the message is lost, as documented")
	}
}
