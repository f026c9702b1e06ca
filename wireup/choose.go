package wireup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goucx/goucx/uct"
)

// Candidate is a local iface and a remote entry that reach each other and can serve a purpose.
type Candidate struct {
	Local  int     // index of the local iface
	Remote int     // index of the remote entry
	Score  float64 // higher is better
}

// Plan holds the candidates for each requested purpose, best first.
type Plan [NumPurposes][]Candidate

// Best returns the best candidate for p.
func (pl *Plan) Best(p Purpose) (Candidate, bool) {
	if len(pl[p]) == 0 {
		return Candidate{}, false
	}
	return pl[p][0], true
}

// Ranking returns the candidates for p with the estimated times by which they are ranked: "lanes
// for messages, by estimated time of a small message: shm/memory 100 ns, rc/lo:1 9000 ns". local
// are the ifaces that Choose received. Without a candidate it returns "".
func (pl *Plan) Ranking(p Purpose, local []LocalIface) string {
	var b strings.Builder
	for i, c := range pl[p] {
		sep := ", "
		if i == 0 {
			sep = fmt.Sprintf("lanes for %v, by estimated time of %s: ", p, criteria[p].time)
		}
		info := local[c.Local].Info
		fmt.Fprintf(&b, "%s%s/%s %.0f ns", sep, info.Transport, info.Device, scoreUnit/c.Score)
	}
	return b.String()
}

// Choose ranks the pairs of a local iface and an entry of remote for each purpose in wants. It
// returns the reason for each unused iface, in the order of local.
//
// Choose depends on its arguments alone, provided that Reachable does. Equal scores are ranked by
// transport ID, then by domain numbers, then by addresses, so that both sides choose the same
// pair.
func Choose(local []LocalIface, remote View, wants ...Purpose) (Plan, []uct.Refusal) {
	var c choice
	c.remote = remote.Entries
	for i, l := range local {
		c.addIface(i, l, wants)
	}
	for _, e := range remote.Entries {
		if !slices.ContainsFunc(local, func(l LocalIface) bool { return l.Info.ID == e.Transport }) {
			c.refuse(uct.IfaceInfo{Transport: e.Transport.String()}, "the peer has it, not in use here")
		}
	}
	for p := range c.plan {
		slices.SortStableFunc(c.plan[p], func(a, b Candidate) int { return c.compare(local, a, b) })
	}
	return c.plan, c.refused
}

type choice struct {
	remote  []Entry
	plan    Plan
	refused []uct.Refusal
}

// addIface adds the candidates of local iface i. Reasons of unreachable entries are reported only
// when no entry is reachable: other devices of the peer do not disqualify the iface.
func (c *choice) addIface(i int, l LocalIface, wants []Purpose) {
	var why []string
	reached := false
	for r, e := range c.remote {
		if e.Transport != l.Info.ID {
			continue
		}
		ok, reason := l.Iface.Reachable(e.Addr)
		switch {
		case ok:
			reached = true
			c.addCandidates(i, l, r, wants)
		case !slices.Contains(why, reason):
			why = append(why, reason)
		}
	}
	switch {
	case reached:
	case why == nil:
		c.refuse(l.Info, "the peer does not have it")
	default:
		c.refuse(l.Info, "%s", strings.Join(why, "; "))
	}
}

// addCandidates adds local iface l and remote entry r as a candidate for each purpose that they can serve.
func (c *choice) addCandidates(i int, l LocalIface, r int, wants []Purpose) {
	own, remote := AttrOf(l.Attr), c.remote[r].Attr
	if (own.Features^remote.Features)&ConnectsEndpoints != 0 {
		c.refuse(l.Info, "the two sides connect in different ways")
		return
	}
	for _, p := range wants {
		if lack := criteria[p].lacks(l.Attr, remote); lack != "" {
			c.refuse(l.Info, "%v: %s", p, lack)
			continue
		}
		c.plan[p] = append(c.plan[p], Candidate{Local: i, Remote: r, Score: criteria[p].score(own, remote)})
	}
}

// refuse records a reason, once.
func (c *choice) refuse(i uct.IfaceInfo, format string, args ...any) {
	r := uct.Refusal{Transport: i.Transport, Device: i.Device, Reason: fmt.Sprintf(format, args...)}
	if !slices.Contains(c.refused, r) {
		c.refused = append(c.refused, r)
	}
}
