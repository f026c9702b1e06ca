package shm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// limitFDs lets the process have n descriptors more than it has.
func limitFDs(t *testing.T, n int) (lift func()) {
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	next, err := unix.Dup(0) // the lowest number that is free
	require.NoError(t, err)
	require.NoError(t, unix.Close(next))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next + n), Max: old.Max}))
	return func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }
}

// TestFewDescriptors brings two connections up with ever more descriptors, so
// that each step fails once: with an error or a report, and without a leak.
func TestFewDescriptors(t *testing.T) {
	before := countFDs(t)
	whole := false
	for n := 0; !whole; n++ {
		require.Less(t, n, 100)
		var ra, rb recorder
		a, b := openTest(t, &ra), openTest(t, &rb)
		idle := countFDs(t)
		lift := limitFDs(t, n)
		ab, err := a.NewEndpoint(addressOf(b))
		if err == nil {
			require.Equal(t, ucs.OK, ab.AMShort(1, 0, nil))
			for i := 0; (rb.n == 0 || ab.(*ep).peerPage == nil) && len(ra.failures) == 0 && i < 3*servicePasses; i++ {
				a.Progress(64)
				b.Progress(64)
			}
			back, err := b.NewEndpoint(addressOf(a))
			whole = rb.n == 1 && err == nil && !back.(*ep).Has(conn.Initiated) && ab.(*ep).peerPage != nil
			if err == nil {
				back.Close()
			}
		}
		lift()
		if err == nil {
			until(t, func() bool { return rb.n == 1 || len(ra.failures) > 0 }, a, b)
			for _, f := range ra.failures {
				require.ErrorIs(t, f.Err, ucs.ErrPeerFailed)
				require.NotContains(t, f.Err.Error(), "crashed", "the reason is known")
			}
			ab.Close()
		}
		until(t, func() bool { return a.Len() == 0 && b.Len() == 0 && len(b.halfOpen) == 0 }, a, b)
		require.Equal(t, idle+len(a.pages)+len(b.pages), countFDs(t), "descriptors, with %d more allowed", n)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
		require.Equal(t, before, countFDs(t), "descriptors, with %d more allowed", n)
	}
}

// TestDescriptorsHeldElsewhere: a child between fork and exec holds all of ours.
// What their events told of must not be taken for the slot's next owner.
func TestDescriptorsHeldElsewhere(t *testing.T) {
	var ra, rb recorder
	f, peer := openTest(t, &ra), openTest(t, &rb)
	p := start(t, "receive")
	ep0, err := f.NewEndpoint(decodeAddress(p.hear()))
	require.NoError(t, err)
	p.say(encodeAddress(addressOf(f)))
	e := ep0.(*ep)
	until(t, func() bool { e.AMUint64(1, 0, 1); return ra.n > 0 }, f)
	for _, fd := range []int{e.pidfd, e.sock.FD()} {
		held, err := unix.Dup(fd)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, unix.Close(held)) })
	}
	// A failure of its own ends it while the process lives on.
	f.FailLater(e, conn.PeerFailed("test"))
	slot := e.Slot()
	until(t, func() bool { return e.Life >= conn.Ended }, f)
	e.Close()
	until(t, func() bool { return f.Len() == 0 }, f)
	next := connectTest(t, f, peer)
	require.Equal(t, slot, next.Slot())
	p.kill()
	until(t, func() bool { next.AMUint64(1, 0, 1); return rb.n > 1000 }, f, peer)
	for range 8 {
		f.requestService()
		f.Progress(64)
	}
	require.Len(t, ra.failures, 1)
	next.Close()
}

// TestKeyServerWithoutDescriptors: it neither spins nor keeps its domain from
// closing, and serves again once there are some.
func TestKeyServerWithoutDescriptors(t *testing.T) {
	d := newTestDomain(t)
	m, err := d.Allocate(64, uct.MemRemote)
	require.NoError(t, err)
	p := memKey(t, m)
	lift := limitFDs(t, 1)
	c, err := shmem.Dial(p.Socket) // takes the one that is left
	time.Sleep(5 * acceptBackoff)
	lift()
	require.NoError(t, err)
	require.Less(t, d.exporter.server.refused.Load(), uint64(10), "it spins")
	g, err := requestGrant(&p, false, patience)
	require.NoError(t, err)
	g.close()
	require.NoError(t, c.Close())

	lift = limitFDs(t, 1)
	c, err = shmem.Dial(p.Socket)
	errs := []error{err, m.Close(), d.Close()}
	lift()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.NoError(t, c.Close())
}
