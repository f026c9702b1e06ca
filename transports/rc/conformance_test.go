package rc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/uct/ucttest"
)

// impatient notices dead peers within seconds.
func impatient(t testing.TB) *config.Set {
	s, _, err := config.Load(config.Options{Env: []string{
		"UCX_RC_TIMEOUT=300ms", "UCX_RC_KEEPALIVE_INTERVAL=500ms", "UCX_RC_CONNECT_TIMEOUT=3s",
	}, Dirs: []string{}}, settings)
	require.NoError(t, err)
	return s
}

func TestConformance(t *testing.T) {
	ucttest.Run(t, ucttest.Factory{Component: Component(loopback), Settings: impatient(t)})
}

func TestConformanceInproc(t *testing.T) {
	ucttest.Run(t, ucttest.Factory{Component: Component(inproc()), Column: "rc-inproc", Settings: impatient(t)})
}

func TestGateAllocs(t *testing.T) {
	ucttest.Gates(t, ucttest.Factory{Component: Component(inproc()), Settings: impatient(t)})
}
