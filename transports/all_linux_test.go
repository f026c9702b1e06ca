package transports

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs/ibv"
)

// deaf is the handler of an iface that nobody talks to.
type deaf struct{}

func (deaf) HandleEvents([]uct.Event)             {}
func (deaf) HandleAM([]byte, []uct.Desc) uint64   { return 0 }
func (deaf) HandlePending(tokens []uct.Token) int { return len(tokens) }
func (deaf) HandleFailure(uct.Failure)            {}

// A worker has an interface on every device that there is, each with counters of
// its own.
func TestEveryDeviceOpensForOneWorker(t *testing.T) {
	worker := uct.IfaceConfig{Handler: deaf{}, Worker: uct.UUID{1}, Stats: new(stats.Group)}
	opened := map[string]bool{}
	for _, c := range All() {
		domains, refused := c.Domains(nil)
		for _, r := range refused {
			require.Contains(t, r.Reason, ibv.ErrNoDevice.Error(), "built with the tag ibverbs, on a host without a device")
		}
		for _, i := range domains {
			d, err := c.OpenDomain(i, uct.DomainConfig{})
			require.NoError(t, err)
			defer func() { assert.NoError(t, d.Close()) }()
			infos, refused := d.Ifaces()
			require.Empty(t, refused)
			for _, i := range infos {
				f, err := d.OpenIface(i, worker)
				require.NoError(t, err, "%s/%s", i.Transport, i.Device)
				defer func() { assert.NoError(t, f.Close()) }()
				opened[i.Transport+"/"+i.Device] = true
			}
		}
	}
	for _, name := range []string{"self/memory0", "shm/memory", "rc/inproc:1", "rc/lo:1", "ud/inproc:1", "ud/lo:1"} {
		assert.Contains(t, opened, name)
	}
}
