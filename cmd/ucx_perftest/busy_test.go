package main

import (
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/perf/rte"
)

// The error of a second client names the client that is served. The next server serves the second
// one.
func TestSecondClient(t *testing.T) {
	port := suitetest.FreePort(t)
	s := start(t, "-p", port)
	first := start(t, "127.0.0.1", "-q", "-p", port, "-n", "0", "-t", "tag_lat")
	first.Says("[thread 0]")
	second := start(t, "127.0.0.1", "-q", "-p", port, "-n", "100", "-t", "tag_lat", "--wait", "600ms")
	assert.Equal(t, 1, second.End(patience))
	assert.Regexp(t, `server at 127.0.0.1:`+port+`: it serves another client, goucx .* \(pid \d+ on .*\)\n`, second.Err.String())
	third := start(t, "127.0.0.1", "-q", "-p", port, "-n", "100", "-t", "tag_lat", "--wait", "60s")
	require.NoError(t, first.Cmd.Process.Signal(os.Interrupt))
	assert.Equal(t, 1, s.End(patience))
	next := start(t, "-p", port)
	assert.Zero(t, third.End(patience), "%s", &third.Err)
	assert.Zero(t, next.End(patience))
}

// A server that falls silent after the greeting is reported.
func TestSilentServer(t *testing.T) {
	l, err := rte.Listen(rte.Config{Port: mustAtoi(t, suitetest.FreePort(t))})
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	c := start(t, "127.0.0.1", "-q", "-p", port, "-n", "100", "-t", "tag_lat", "--wait", "300ms")
	conn, err := l.Accept(func(error) {})
	require.NoError(t, err)
	c.Tells("has not answered for 300ms; still waiting")
	require.NoError(t, conn.Close())
	assert.Equal(t, 1, c.End(patience))
}

func mustAtoi(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}
