//go:build linux && cgo && ibverbs

package ibv

import (
	_ "embed"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/verbstest"
)

// deviationsOfRXE are the cases that the kernel's Soft-RoCE does not pass.
//
//go:embed testdata/rxe.txt
var deviationsOfRXE string

// TestConformance runs the suite of package verbs on the device that GOUCX_IBV_DEVICE names, or between
// two devices ("rxe0,rxe1").
func TestConformance(t *testing.T) { verbstest.Run(t, liveFixture(t)) }

// TestLiveAllocs counts allocations on the device.
func TestLiveAllocs(t *testing.T) { verbstest.Gates(t, liveFixture(t)) }

func liveFixture(t *testing.T) verbstest.Fixture {
	names := liveDevices(t)
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	require.NoError(t, err)
	return verbstest.Fixture{
		Name: "ibv", Can: verbstest.Threads | verbstest.Background, Deviations: deviationsOfRXE, Kernel: strings.TrimSpace(string(release)),
		// Soft-RoCE differs from hardware in all of these.
		Traits: verbstest.Traits{AtomicsCheckedAtPost: true, OversizeDatagramsVanish: true, ShortReceiveIsOpErr: true, NoCommEst: true, NoAccessEvents: true, OneDevice: len(names) == 1},
		Open: func(t testing.TB, _ verbstest.Needs) *verbstest.Fabric {
			return &verbstest.Fabric{Devices: [2]verbs.Context{openLive(t, names[0]), openLive(t, names[len(names)-1])}}
		},
	}
}
