package soft

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs/wire"
)

// Of our own devices no identification is believed that they do not send: bits
// that were flipped would find one among all. rxe and hardware send any.
func TestUDPIdentification(t *testing.T) {
	to := openTestPort(t, localhost)
	for name, c := range map[string]struct {
		port  uint16
		bound int // of identifications that are right
	}{
		"our own":  {0x8123, maxSegments},
		"RoCEv2's": {rocePort, maxSegments},
		"rxe":      {0xc123, 1 << 16},
	} {
		t.Run(name, func(t *testing.T) {
			from := netip.AddrPortFrom(localhost, c.port)
			d := &datagram{b: make([]byte, minPacket+8), from: sourceOf(from), pre: wire.NewPrefix(from, to.addr), u: to}
			d.seg = len(d.b)
			for id := range 1 << 16 {
				d.pre.Seal(d.b, uint16(id))
				require.Equal(t, id < c.bound, d.check(0), "identification %d", id)
			}
		})
	}
}
