package nic

import "github.com/goucx/goucx/verbs"

// grhLen is the length of the area in front of a datagram's data.
const grhLen = 40

// Offsets of the source address in that area: of an IPv4 header, which fills its end,
// and of an IPv6 header.
const (
	grhSrc4 = 32
	grhSrc6 = 8
)

// hiddenPort is the first UDP source port that a soft device shows as LID 0.
const hiddenPort = 0xc000

// SentFrom reports whether the datagram of wc came from the queue pair and port that a
// names: only then does an answer to a go to the sender. area is what stands in front of
// the datagram's data. A device without GRH in its datagrams shows the LID alone.
func (d *Domain) SentFrom(a *Address, wc *verbs.WC, area []byte) bool {
	if wc.SrcQP != a.QPN {
		return false
	}
	if wc.Flags&verbs.WCGRH != 0 && !fromGID(area, &a.Port.GID) {
		return false
	}
	switch {
	case d.ctx.Info().Provider == "soft":
		return wc.SLID == a.Port.LID && wc.SLID != 0 || wc.SLID == 0 && a.Port.LID >= hiddenPort
	case wc.Flags&verbs.WCGRH == 0:
		return wc.SLID == a.Port.LID
	}
	return true // the LID says nothing on RoCE
}

// fromGID reports whether the header in area names g as its source. A device has
// addresses of one family, and g is of the same.
func fromGID(area []byte, g *verbs.GID) bool {
	if len(area) < grhLen {
		return false
	}
	if g.Addr().Is4() {
		return [4]byte(area[grhSrc4:]) == [4]byte(g[12:])
	}
	return [16]byte(area[grhSrc6:]) == *g
}

// Source is what tells the senders of datagrams apart that cannot choose it freely: a
// device.
type Source struct {
	GID verbs.GID
	LID uint16
}

// Source is the device at that port.
func (a *PortAddress) Source() Source { return Source{a.GID, a.LID} }
