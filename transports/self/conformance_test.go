package self

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/uct/ucttest"
)

var factory = ucttest.Factory{Component: Component()}

func TestConformance(t *testing.T) { ucttest.Run(t, factory) }

func TestGateAllocs(t *testing.T) { ucttest.Gates(t, factory) }

// TestConformanceSmall runs the suite with queues that are full all the time.
func TestConformanceSmall(t *testing.T) {
	suitetest.Nightly(t)
	set, _, err := config.Load(config.Options{
		Env: []string{"UCX_SELF_SEG_SIZE=256", "UCX_SELF_FIFO_SIZE=4"}, Dirs: []string{},
	}, settings)
	require.NoError(t, err)
	ucttest.Run(t, ucttest.Factory{Component: Component(), Settings: set})
}
