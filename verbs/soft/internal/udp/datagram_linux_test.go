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
		port  uint16
		check ICRCCheck
		bound int // of identifications that are right
	}{
		"soft":                      {0x8123, ICRCSearch, MaxSegments},
		"soft, port of RoCEv2":      {RoCEPort, ICRCSearch, MaxSegments},
		"soft, port of rxe":         {0xc123, ICRCSearch, MaxSegments},
		"foreign, port of rxe":      {0xc123, ICRCSearchAny, 1 << 16},
		"foreign, port of RoCEv2":   {RoCEPort, ICRCSearchAny, 1 << 16},
		"strict":                    {0x8123, ICRCStrict, 1},
		"strict, port of rxe":       {0xc123, ICRCStrict, 1},
		"unchecked":                 {0x8123, ICRCNone, 1 << 16},
		"foreign, port of no range": {1025, ICRCSearchAny, 1 << 16},
	} {
		t.Run(name, func(t *testing.T) {
			from := netip.AddrPortFrom(loopback, c.port)
			d := &Datagram{b: make([]byte, MinPacket+8), From: SourceOf(from), Prefix: wire.NewPrefix(from, to.Addr), u: to}
			d.seg = len(d.b)
			for id := range 1 << 16 {
				d.Prefix.Seal(d.b, uint16(id))
				require.Equal(t, id < c.bound, d.Check(0, c.check), "identification %d", id)
			}
		})
	}
}
