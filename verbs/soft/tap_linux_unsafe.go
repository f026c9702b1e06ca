//go:build linux

package soft

import (
	"net/netip"
	"unsafe"

	"github.com/goucx/goucx/verbs/wire"
)

// local returns the port's address.
func (u *udpPort) local() netip.AddrPort { return u.addr }

// tapPackets passes the packets of a segment batch to Config.Tap, assembled from their
// pieces.
//
//go:noinline
func (t *segmentBatch) tapPackets() {
	h := wire.Network{Src: t.u.addr, Dst: t.peer.src.addrPort(), TOS: t.peer.tclass, TTL: t.peer.ttl}
	if h.TTL == 0 {
		h.TTL = defaultTTL
	}
	all := make([]byte, 0, t.total)
	from := 0
	for i := range t.count {
		end, n := t.niov, t.segLen
		if t.gso {
			h.ID = uint16(i)
		} else {
			end, n = int(t.iovEnds[i]), t.total
		}
		for ; from < end; from++ {
			v := &t.iov[from]
			// Each element is a Go slice, added by piece with its length.
			all = append(all, unsafe.Slice(v.Base, int(v.Len))...)
		}
		n = min(n, len(all))
		t.u.tap(true, &h, all[:n])
		all = all[n:]
	}
}
