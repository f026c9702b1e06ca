package sim

import (
	"net/netip"
	"slices"

	"github.com/goucx/goucx/ucs"
)

// partition is a partition: while it lasts, all datagrams between the sides are lost.
type partition struct {
	a, b        []netip.AddrPort
	from, until ucs.Time
}

// Partition cuts all links between the nodes a and the nodes b, in both directions, from one time
// until another. Datagrams that are sent or would arrive in that time are lost.
func (n *Net) Partition(a, b []netip.AddrPort, from, until ucs.Time) {
	n.partitions = append(n.partitions, partition{slices.Clone(a), slices.Clone(b), from, until})
}

func (n *Net) isPartitioned(p pair) bool {
	for i := range n.partitions {
		if c := &n.partitions[i]; !n.now.Before(c.from) && n.now.Before(c.until) && c.between(p) {
			return true
		}
	}
	return false
}

func (c *partition) between(p pair) bool {
	return slices.Contains(c.a, p.from) && slices.Contains(c.b, p.to) ||
		slices.Contains(c.b, p.from) && slices.Contains(c.a, p.to)
}
