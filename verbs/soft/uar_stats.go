package soft

import (
	"fmt"
	"slices"

	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// addTo adds the groups of the account: "uar", one for each class of uUARs, one for each
// page with queue pairs, and "modelled".
//
// A uUAR is used if a queue pair of it has left the state Reset, and wasted otherwise. The
// paper counts a uUAR of spare queue pairs, which carry no messages, as wasted too. The
// caller holds d.mu.
func (a *uars) addTo(g *stats.Group, d *device) {
	if a == nil {
		return
	}
	used := make(map[*uuar]bool)
	d.qps.each(func(q *qp) {
		if q.uuar != nil && q.loadState() != verbs.StateReset {
			used[q.uuar] = true
		}
	})
	pages := slices.Collect(slices.Chunk(a.static, 2))
	for _, p := range a.dynamic {
		if p != nil {
			pages = append(pages, p.uuars[:])
		}
	}
	var classes [numUUARClasses][3]uint64 // as the names below
	for _, p := range pages {
		for i := range p {
			c := &classes[p[i].class]
			c[0]++
			if used[&p[i]] {
				c[1]++
			}
			c[2] += uint64(p[i].qps)
		}
	}
	n := uint64(len(used))
	total := uint64(2 * len(pages))
	_ = g.Add("uar", setOf([]string{"pages_static", "pages_dynamic", "uuars", "used", "wasted", "locks"},
		[]uint64{uint64(len(a.static) / 2), uint64(a.numDynamic), total, n, total - n, a.locks()}))
	for class, c := range classes {
		_ = g.Add("uar."+uuarClassNames[class], setOf([]string{"uuars", "used", "qps"}, c[:]))
	}
	for _, p := range pages {
		if p[0].qps+p[1].qps > 0 {
			_ = g.Add(fmt.Sprintf("uar.page%d", p[0].number/2),
				setOf([]string{fmt.Sprintf("uuar%d_qps", p[0].number), fmt.Sprintf("uuar%d_qps", p[1].number)}, []uint64{uint64(p[0].qps), uint64(p[1].qps)}))
		}
	}

	made := d.open.Open()
	made[objects.PD] -= d.parents // a parent domain is no object of the adapter
	sum := uint64(modelledContext)
	names, bytes := []string{"ctx"}, []uint64{modelledContext}
	for _, m := range modelled {
		names = append(names, objects.Names[m.kind])
		bytes = append(bytes, uint64(made[m.kind])*m.bytes)
		if m.bytes >= 1<<10 {
			sum += bytes[len(bytes)-1]
		}
	}
	_ = g.Add("modelled", setOf(append(names, "sum"), append(bytes, sum)))
}

// locks returns how often locks of uUARs were taken: only static ones have locks.
func (a *uars) locks() (n uint64) {
	if a == nil {
		return 0
	}
	for i := range a.static {
		u := &a.static[i]
		u.lock.lock()
		n += u.locks
		u.lock.unlock()
	}
	return n
}

// The memory that mlx5's objects take in the host, beside the memory of this package's own
// objects, which is the group "bytes".
//
// Source: Table I of the paper, with K = 1024 bytes. Its total of 345K leaves out protection
// domains and regions, so "sum" does too. The sums of sections V and VII come out in this
// way, with MB = 2^20 bytes: 16 contexts with a queue pair and a completion queue each take
// 5.39 MB (5.40 with a domain and a region each); one context with 32, 16 or 1 of them takes
// 3.03, 1.64 or 0.34 MB.
const modelledContext = 256 << 10

var modelled = []struct {
	kind  objects.Kind
	bytes uint64
}{
	{objects.PD, 144},
	{objects.MR, 144},
	{objects.QP, 80 << 10},
	{objects.CQ, 9 << 10},
}
