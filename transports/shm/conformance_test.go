package shm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/uct/ucttest"
)

var factory = ucttest.Factory{Component: Component()}

func TestConformance(t *testing.T) { ucttest.Run(t, factory) }

// TestConformanceOfRestlessConnections: the same where nearly all connections are
// put to sleep as soon as they are idle, and rings begin as small as they may.
func TestConformanceOfRestlessConnections(t *testing.T) {
	suitetest.Nightly(t)
	s, err := loaded("UCX_SHM_MAX_PAIRS=1", "UCX_SHM_RING_CELLS=8", "UCX_SHM_RING_SIZE=4k")
	require.NoError(t, err)
	ucttest.Run(t, ucttest.Factory{Component: Component(), Settings: s})
}

func TestGateAllocs(t *testing.T) { ucttest.Gates(t, factory) }
