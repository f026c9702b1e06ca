package udp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs/wire"
)

// From a soft device only identifications that it sends are valid: damaged packets
// would find a matching one among all. A foreign device may send any, from any port.
func TestUDPIdentification(t *testing.T) {
	to := openTestPort(t, loopback)
	for name, c := range map[string]struct {
		port    uint16
		foreign bool
		bound   int // of identifications that are right
	}{
		"soft":                      {0x8123, false, MaxSegments},
		"soft, port of RoCEv2":      {RoCEPort, false, MaxSegments},
		"soft, port of rxe":         {0xc123, false, MaxSegments},
		"foreign, port of rxe":      {0xc123, true, 1 << 16},
		"foreign, port of RoCEv2":   {RoCEPort, true, 1 << 16},
		"foreign, port of no range": {1025, true, 1 << 16},
	} {
		t.Run(name, func(t *testing.T) {
			from := netip.AddrPortFrom(loopback, c.port)
			d := &Datagram{b: make([]byte, MinPacket+8), From: SourceOf(from), Prefix: wire.NewPrefix(from, to.Addr), u: to}
			d.seg = len(d.b)
			for id := range 1 << 16 {
				d.Prefix.Seal(d.b, uint16(id))
				require.Equal(t, id < c.bound, d.Check(0, c.foreign), "identification %d", id)
			}
		})
	}
}
