package soft

import (
	"github.com/goucx/goucx/verbs/wire"
)

// defaultTTL is the system's default time to live.
const defaultTTL = 64

// tapDatagram passes the packets of a received datagram to Config.Tap.
//
//go:noinline
func (d *device) tapDatagram(g *datagram) {
	h := wire.Network{Src: g.from.addrPort(), Dst: d.udp.local(), TOS: g.tos, TTL: g.ttl}
	if h.TTL == 0 {
		h.TTL = defaultTTL
	}
	for i := range g.packets() {
		b := g.packet(i)
		h.ID, _ = g.prefix.Check(b, uint16(i))
		d.conf.Tap(false, &h, b)
	}
}
