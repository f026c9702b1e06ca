package wireup

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/goucx/goucx/uct"
)

// Purpose is the use of a lane.
type Purpose uint8

// Purposes.
const (
	// ForAM: active messages.
	ForAM Purpose = iota
	// ForRMA: put and get.
	ForRMA
	// ForAMO: atomics.
	ForAMO
	NumPurposes
)

// Short returns UCX's short name of the purpose.
func (p Purpose) Short() string { return [NumPurposes]string{"am", "rma", "amo"}[p] }

// criterion holds what a purpose requires of an iface and how it ranks candidates.
type criterion struct {
	name  string
	time  string                                         // what the score is the inverse of, for texts
	lacks func(local *uct.IfaceAttr, remote Attr) string // the missing capability, or ""
	score func(local, remote Attr) float64               // higher is better
}

const (
	// scoreUnit is the score of a nanosecond: UCX's 1e-3/seconds.
	scoreUnit = 1e6

	minBcopy = 64   // an active message holds at least UCP's headers
	rmaBytes = 4096 // transfer size in bytes for ranking put and get
)

var criteria = [NumPurposes]criterion{
	ForAM: {"messages", "a small message", lacksAM, scoreLatency},
	ForRMA: {
		"put and get", "4096 bytes", func(local *uct.IfaceAttr, _ Attr) string {
			if local.Ops&uct.OpsPut == 0 || local.Ops&uct.OpsGet == 0 {
				return "does not put and get"
			}
			return ""
		}, scoreRMA,
	},
	ForAMO: {
		"atomics", "a small message", func(local *uct.IfaceAttr, _ Attr) string {
			if !local.Ops.Has(uct.OpAtomics) {
				return "has no atomics"
			}
			return ""
		}, scoreLatency,
	},
}

// String returns the name of the purpose.
func (p Purpose) String() string {
	if p < NumPurposes {
		return criteria[p].name
	}
	return "purpose?"
}

func lacksAM(local *uct.IfaceAttr, remote Attr) string {
	switch {
	case !local.Ops.Has(uct.OpAMBcopy|uct.OpPending) || local.AM.Bcopy < minBcopy:
		return "does not send active messages"
	case !remote.Ops.Has(uct.OpAMBcopy):
		return "the peer does not receive active messages"
	}
	return ""
}

// scoreLatency ranks by the time of a small message. The latency is the mean of both sides'
// values. Sums of quantities in nanoseconds are exact, so both sides compute the same number.
//
// Source: UCX's wireup scores, here and below.
func scoreLatency(local, remote Attr) float64 {
	return scoreUnit / (latencyNS(local, remote) + remote.Overhead.Float(nanosecond))
}

// scoreRMA ranks by the time of a one-sided transfer of rmaBytes. It includes no CPU time of the
// peer.
func scoreRMA(local, remote Attr) float64 {
	bw := min(local.Bandwidth, remote.Bandwidth).Float(megabyte)
	return scoreUnit / (latencyNS(local, remote) + 1e9*rmaBytes/bw)
}

// latencyNS returns the latency plus the sender's overhead.
func latencyNS(local, remote Attr) float64 {
	latency := (local.Latency.Float(nanosecond) + remote.Latency.Float(nanosecond)) / 2
	return latency + local.Overhead.Float(nanosecond)
}

// compare orders candidates best first. It uses only what both sides know, so that they agree:
// domain numbers by their sum where both sides number domains alike, else the addresses.
func (c *choice) compare(local []LocalIface, a, b Candidate) int {
	da, db := local[a.Local].Domain, local[b.Local].Domain
	ra, rb := int(c.remote[a.Remote].Device), int(c.remote[b.Remote].Device)
	order := cmp.Or(
		cmp.Compare(b.Score, a.Score),
		cmp.Compare(local[a.Local].Info.ID, local[b.Local].Info.ID),
		cmp.Compare(da+ra, db+rb),
	)
	if order != 0 {
		return order
	}
	return cmp.Or(bytes.Compare(c.addresses(local, a), c.addresses(local, b)), cmp.Compare(da, db))
}

// addresses returns the addresses of the candidate's two ifaces, the lower one first.
func (c *choice) addresses(local []LocalIface, x Candidate) []byte {
	f := local[x.Local].Iface
	remoteAddr := c.remote[x.Remote].Addr
	own, peer := f.Address(f.DeviceAddress(nil)), slices.Concat(remoteAddr.Device, remoteAddr.Iface)
	if bytes.Compare(own, peer) > 0 {
		own, peer = peer, own
	}
	return append(own, peer...)
}
