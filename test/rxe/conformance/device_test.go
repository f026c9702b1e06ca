//go:build linux && cgo && ibverbs

package conformance

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/rc"
	"github.com/goucx/goucx/transports/ud"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/ibv"
)

// deviceVar names the RDMA device that the tests use, as for package verbs/ibv.
const deviceVar = "GOUCX_IBV_DEVICE"

// impatient are settings with which the end of a peer is noticed within seconds.
var impatient = []string{
	"UCX_RC_TIMEOUT=300ms", "UCX_RC_KEEPALIVE_INTERVAL=500ms", "UCX_RC_CONNECT_TIMEOUT=3s",
	"UCX_UD_TIMEOUT=4s", "UCX_UD_KEEPALIVE_INTERVAL=500ms",
}

// over returns a transport on the RDMA devices alone, and the port of the device under test. Without a
// device the test is skipped.
func over(t testing.TB, transport string) (c uct.Component, port string) {
	t.Helper()
	name := os.Getenv(deviceVar)
	if name == "" {
		t.Skip("no RDMA device: " + deviceVar + " is not set")
	}
	devices := func(*config.Set, *zap.Logger) []verbs.Provider { return []verbs.Provider{ibv.New(ibv.Config{})} }
	switch transport {
	case "rc":
		c = rc.Component(devices)
	case "ud":
		c = ud.Component(devices)
	}
	require.NotNil(t, c, "transport %s", transport)
	return c, name + ":1"
}
