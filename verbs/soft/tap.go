package soft

import (
	"github.com/goucx/goucx/verbs/wire"
)

// usualTTL is the system's default time to live.
const usualTTL = 64

// show passes the packets of a received datagram to Config.Tap.
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
