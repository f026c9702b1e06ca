package ud

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
	ucttest.Run(t, ucttest.Factory{
		Component: Component(faulty(soft.LinkInproc, 0.01)), Column: "ud-sim", Settings: impatient(t, "4s"), Late: true, Messages: 5000,
	})
}
