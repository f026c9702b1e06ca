package shm

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// TestFetchReusedPID: no side copies from or to the process that has the id of a peer that has ended.
func TestFetchReusedPID(t *testing.T) {
	x := newFetcher(t)
	gone := exec.Command("true")
	require.NoError(t, gone.Start())
	pidfd, err := unix.PidfdOpen(gone.Process.Pid, 0)
	require.NoError(t, err)
	require.NoError(t, gone.Wait())
	src, dst := text(8*pieceSize), make([]byte, 8*pieceSize)
	require.Equal(t, ucs.OK, x.ab.Expose(id(1), src, nil))
	require.Equal(t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(1), uint64(len(src)), dst, nil, 1))
	until(t, func() bool { return x.ba.copies.fetches[0].entry != nil }, x.b)
	before := bytes.Clone(dst)
	x.ab.pidfd = pidfd // as the owner sees it, the peer's id is that of this process now
	require.Zero(t, x.a.help())
	x.ab.pidfd, x.ba.pidfd = -1, pidfd // as the peer sees it, the owner's is
	x.b.continueFetches()
	require.Equal(t, []uct.Event{{Token: 1, Status: ucs.Canceled}}, x.ended)
	require.Equal(t, before, dst)
	require.Equal(t, ucs.OK, x.ab.Withdraw(id(1)))
	require.Equal(t, ucs.OK, x.ab.Expose(id(2), src, nil))
	require.Equal(t, ucs.Canceled, x.b.Fetch(x.ba.Source, id(2), uint64(len(src)), dst, nil, 2))
	require.Equal(t, before, dst)
}
