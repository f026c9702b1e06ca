package nic

import "github.com/goucx/goucx/verbs"

// grhLen is the length of the area before a datagram's payload.
const grhLen = 40

// Offsets of the source address in that area: of an IPv4 header, which fills the end of the
// area, and of an IPv6 header.
const (
	grhSrc4 = 32
	grhSrc6 = 8
)

// lid0MinPort is the first UDP source port that a soft device reports as LID 0.
const lid0MinPort = 0xc000

// rocePort is the UDP port of a device with LID 0.
const rocePort = 4791

// SentFrom reports whether the QP and port in a sent the datagram of wc. Only then does a reply
// to a go to the sender. area is the area before the payload. A device that reports no GRH
// reports the LID only.
func (d *Domain) SentFrom(a *Address, wc *verbs.WC, area []byte) bool {
	if wc.SrcQP != a.QPN {
		return false
	}
	if wc.Flags&verbs.WCGRH != 0 && !fromGID(area, &a.Port.GID) {
		return false
	}
	switch {
	case d.ctx.Info().Provider == "soft":
		port := a.Port.LID
		if port == 0 {
			port = rocePort
		}
		// Hardware, and goucx over it, sends from any port at or above lid0MinPort.
		return wc.SLID == port || wc.SLID == 0 && (port >= lid0MinPort || a.Port.LID == 0 && !a.Port.Goucx)
	case wc.Flags&verbs.WCGRH == 0:
		return wc.SLID == a.Port.LID
	}
	return true // on RoCE the LID has no meaning
}

// fromGID reports whether the source address in area is g. The addresses of a device are of one
// family, and g is of the same.
func fromGID(area []byte, g *verbs.GID) bool {
	if len(area) < grhLen {
		return false
	}
	if g.Addr().Is4() {
		return [4]byte(area[grhSrc4:]) == [4]byte(g[12:])
	}
	return [16]byte(area[grhSrc6:]) == *g
}

// Source identifies the device that sent a datagram. A sender cannot choose it freely.
type Source struct {
	GID verbs.GID
	LID uint16
}

// Source returns the device at that port.
func (a *PortAddress) Source() Source { return Source{a.GID, a.LID} }
