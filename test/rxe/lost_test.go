package rxe

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/test/rxe/vm"
)

// spareDevice makes rxe2 on ve2, 10.77.0.4, and noSpareDevice removes what is left of it.
const (
	spareDevice = `ip link add ve2 mtu 4500 address 02:00:0a:4d:00:04 type veth peer name pv2 mtu 4500 netns peer
ip link set ve2 up
ip -n peer link set pv2 master pe0 up
ip addr add 10.77.0.4/24 dev ve2
rdma link add rxe2 type rxe netdev ve2`
	noSpareDevice = `rdma link delete rxe2 2>/dev/null || true
ip link delete ve2 2>/dev/null || true`
)

// TestLost: sends end, with the reason, where a device goes away under traffic, and programs can close it.
func TestLost(t *testing.T) {
	if testing.Short() {
		return // the product's part is held by tests of rc and ud on a soft device that fails
	}
	defer spent("a device that goes away", time.Now())
	for _, remove := range []string{"ip link set ve2 down", "rdma link delete rxe2"} {
		for _, transport := range []string{"rc", "ud"} {
			oneSide := map[bool]string{true: "1"}[transport == "rc" && strings.HasPrefix(remove, "ip ")] // see package conformance
			t.Run(remove+" "+transport, func(t *testing.T) {
				provide(t, transportTest)
				sh := func(script string) vm.Job { return vm.Job{Argv: []string{"sh", "-ec", script}} }
				run(t, sh(spareDevice))
				defer func() { run(t, sh(noSpareDevice)) }()
				r := run(t, vm.Job{
					Argv:  []string{transportTest.name, "-test.v", "-test.run=^TestLost$/^" + transport + "$"},
					Env:   []string{"GOUCX_IBV_DEVICE=rxe0", "GOUCX_IBV_SPARE=rxe2", "GOUCX_IBV_REMOVE=" + remove, "GOUCX_IBV_ONE_SIDE=" + oneSide},
					Limit: 3 * time.Minute,
				})
				assert.Contains(t, r.Stdout, "--- PASS: TestLost/"+transport)
				for line := range strings.Lines(r.Stdout) {
					if strings.Contains(line, "had ended") || strings.Contains(line, "close: ") {
						t.Log(strings.TrimSpace(line))
					}
				}
			})
		}
	}
}
