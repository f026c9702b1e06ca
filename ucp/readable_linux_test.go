package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// readable reports whether fd has something now.
func readable(tb testing.TB, fd int) bool {
	tb.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	require.NoError(tb, err)
	return n > 0
}
