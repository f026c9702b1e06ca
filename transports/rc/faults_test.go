package rc

import (
	"testing"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/uct/ucttest"
	"github.com/goucx/goucx/verbs/soft"
)

// TestConformanceUnderFaults: the same over a simulated link that loses, doubles,
// reorders and corrupts.
func TestConformanceUnderFaults(t *testing.T) {
	suitetest.Nightly(t)
	c := Component(faulty(soft.Faults{Seed: 3, Loss: 0.002, Duplicate: 0.002, Reorder: 0.002, Corrupt: 0.002}))
	s := settingsOf(t, "UCX_RC_TIMEOUT=1s", "UCX_RC_KEEPALIVE_INTERVAL=500ms", "UCX_RC_CONNECT_TIMEOUT=4s")
	ucttest.Run(t, ucttest.Factory{Component: c, Column: "rc-sim", Messages: fewMessages, Settings: s, Late: true})
}
