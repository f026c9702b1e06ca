package ucptest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports"
)

// impatient notices dead peers within seconds.
var impatient = []string{
	"UCX_RC_TIMEOUT=300ms", "UCX_RC_KEEPALIVE_INTERVAL=500ms", "UCX_RC_CONNECT_TIMEOUT=3s",
	"UCX_UD_TIMEOUT=4s", "UCX_UD_KEEPALIVE_INTERVAL=500ms",
}

var (
	inproc   = []string{"UCX_SOFT_LINK=inproc"}
	loopback = []string{"UCX_SOFT_LINK=udp", "UCX_SOFT_ADDR=127.0.0.1"}
)

// over makes the factory of a column over the transports of these names.
func over(t *testing.T, column string, env []string, names ...string) Factory {
	f := Factory{Column: column, Env: slices.Concat(env, impatient)}
	for _, n := range names {
		for _, c := range transports.All() {
			if c.Name() == n {
				f.Providers = append(f.Providers, c)
			}
		}
	}
	require.Len(t, f.Providers, len(names))
	return f
}

func factories(t *testing.T) []Factory {
	return []Factory{
		over(t, "self", nil, "self"),
		over(t, "shm", nil, "shm"),
		over(t, "rc", loopback, "rc"),
		over(t, "rc-inproc", inproc, "rc"),
		over(t, "ud", loopback, "ud"),
		over(t, "ud-inproc", inproc, "ud"),
		over(t, "rc+ud", inproc, "rc", "ud"),
		over(t, "shm+rc", loopback, "shm", "rc"),
	}
}

func TestUCP(t *testing.T) {
	for _, f := range factories(t) {
		t.Run(f.Column, func(t *testing.T) { Run(t, f) })
	}
}
