package soft

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs/wire"
)

// From a soft device only identifications that it sends are valid: damaged packets
// would find a matching one among all. A foreign device may send any, from any port.
func TestUDPIdentification(t *testing.T) {
	to := openTestPort(t, localhost)
	for name, c := range map[string]struct {
		port    uint16
		foreign bool
		bound   int // of identifications that are right
	}{
		"soft":                      {0x8123, false, maxSegments},
		"soft, port of RoCEv2":      {rocePort, false, maxSegments},
		"soft, port of rxe":         {0xc123, false, maxSegments},
		"foreign, port of rxe":      {0xc123, true, 1 << 16},
		"foreign, port of RoCEv2":   {rocePort, true, 1 << 16},
		"foreign, port of no range": {1025, true, 1 << 16},
	} {
		t.Run(name, func(t *testing.T) {
			from := netip.AddrPortFrom(localhost, c.port)
			d := &datagram{b: make([]byte, minPacket+8), from: sourceOf(from), prefix: wire.NewPrefix(from, to.addr), u: to}
			d.seg = len(d.b)
			for id := range 1 << 16 {
				d.prefix.Seal(d.b, uint16(id))
				require.Equal(t, id < c.bound, d.check(0, c.foreign), "identification %d", id)
			}
		})
	}
}
