package soft

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

// TestFlippedBitsDoNotArrive: no packet with flipped bits gets a right checksum,
// whatever goes out with it.
func TestFlippedBitsDoNotArrive(t *testing.T) {
	a, b, toB, toA := udpPair(t, loopback)
	d := &device{}
	d.udp = a
	f := newFaultLink(&Faults{}, udpLink{d}, 1, func() {})
	r := rand.New(rand.NewPCG(1, 2))
	for range 3 { // whole, flipped so that it is no packet, flipped; and a whole one behind
		f.put(&route{udp: toB}, randomPacket(r, wire.SendOnly, 64), 0)
	}
	f.put(&route{udp: toB}, randomPacket(r, wire.SendOnly, 8), 0)
	f.tx.delayed[1].b[0] = 0xff // an opcode that there is not
	f.tx.delayed[2].b[wire.BTHLen+5] ^= 1
	f.release(0)
	whole := 0
	arrivals(t, b, func(d *udp.Datagram) bool {
		require.True(t, toA.Matches(d))
		for i := range d.Packets() {
			var p packet
			if _, ok := decodePacket(d, i, &p, udp.ICRCSearch); ok {
				whole++
				assert.Contains(t, []int{64, 8}, p.n)
			}
		}
		return whole < 2
	})
	for range 100 {
		for _, d := range b.Recv() {
			for i := range d.Packets() {
				_, ok := decodePacket(d, i, &packet{}, udp.ICRCSearch)
				assert.False(t, ok, "a third packet is whole")
			}
		}
	}
}
