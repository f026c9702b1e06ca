package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// A second client is told which one the server serves, and gets its turn of the next server.
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
