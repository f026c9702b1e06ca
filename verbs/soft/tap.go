package soft

import (
	"github.com/goucx/goucx/verbs/wire"
)

// usualTTL is what the system sends with where nobody says another.
const usualTTL = 64

// show hands the packets of a datagram that came to the tap.
//
//go:noinline
func (d *device) show(g *datagram) {
	h := wire.Network{Src: g.from.addrPort(), Dst: d.udp.local(), TOS: g.tos, TTL: g.ttl}
	if h.TTL == 0 {
		h.TTL = usualTTL
	}
	for i := range g.packets() {
		b := g.packet(i)
		h.ID, _ = g.pre.Check(b, uint16(i))
		d.conf.Tap(false, &h, b)
	}
}
