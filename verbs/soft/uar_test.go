package soft

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/verbs"
)

// naiveMLX5 is a second implementation of mlx5's assignment. It keeps only what is open,
// and works out everything else anew for each object.
type naiveMLX5 struct {
	total, low int
	qps        []naiveQP
	tds        []naiveTD
	clock      int
	lastUsed   map[int]int // when a thread domain of a dynamic uUAR closed, by its number
}

type naiveQP struct{ id, uuar int }

type naiveTD struct {
	id, uuar int
	unshared bool
}

func (m *naiveMLX5) qpsOf(uuar int) (n int) {
	for _, q := range m.qps {
		if q.uuar == uuar {
			n++
		}
	}
	return n
}

func (m *naiveMLX5) addQP(id int) int {
	best := 0
	for i := m.total - 1; i >= m.total-m.low; i-- {
		if m.qpsOf(i) == 0 {
			best = i
		}
	}
	if best == 0 {
		fewest := 1 << 30
		for i := 1; i < m.total-m.low; i++ {
			if n := m.qpsOf(i); n < fewest {
				best, fewest = i, n
			}
		}
	}
	m.qps = append(m.qps, naiveQP{id, best})
	return best
}

// tdOf returns the thread domain of a dynamic uUAR, or nil.
func (m *naiveMLX5) tdOf(uuar int) *naiveTD {
	for i := range m.tds {
		if m.tds[i].uuar == uuar {
			return &m.tds[i]
		}
	}
	return nil
}

func (m *naiveMLX5) addTD(id int, unshared bool) int {
	m.clock++
	chosen, oldest := -1, 1<<30
	page := -1 // the first without thread domains
	for p := m.total / 2; p < m.total/2+512; p++ {
		a, b := m.tdOf(2*p), m.tdOf(2*p+1)
		if a == nil && b == nil {
			if page < 0 {
				page = p
			}
			continue
		}
		for i, td := range []*naiveTD{a, b} {
			other := []*naiveTD{b, a}[i]
			if td == nil && !other.unshared && !unshared && m.lastUsed[2*p+i] < oldest {
				chosen, oldest = 2*p+i, m.lastUsed[2*p+i]
			}
		}
	}
	if chosen < 0 {
		chosen = 2 * page
		m.lastUsed[chosen+1] = m.clock // it is free from now on
	}
	m.tds = append(m.tds, naiveTD{id, chosen, unshared})
	return chosen
}

func (m *naiveMLX5) removeTD(id int) {
	m.clock++
	i := slices.IndexFunc(m.tds, func(t naiveTD) bool { return t.id == id })
	m.lastUsed[m.tds[i].uuar] = m.clock
	m.tds = slices.Delete(m.tds, i, i+1)
}

// pages returns the number of dynamic pages.
func (m *naiveMLX5) pages() int {
	pages := map[int]bool{}
	for _, t := range m.tds {
		pages[t.uuar/2] = true
	}
	return len(pages)
}

// TestUARAssignment compares the assignment of uUARs to queue pairs and thread domains
// with naiveMLX5, while random ones are made and closed.
func TestUARAssignment(t *testing.T) {
	seeds := uint64(20)
	if race.Enabled {
		seeds = 3
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 22))
		conf := MLX5{}
		naive := naiveMLX5{total: 16, low: 4, lastUsed: map[int]int{}}
		if seed > 0 {
			naive.total = 2 * (1 + rnd.IntN(20))
			naive.low = rnd.IntN(naive.total)
			conf.TotalUUARs, conf.LowLatencyUUARs = fmt.Sprint(naive.total-rnd.IntN(2)), fmt.Sprint(naive.low)
			naive.low = max(naive.low, naive.total-12)
		}
		d := openTest(t, Config{Adapter: &conf})
		p := testPD(t, d)
		c := testCQ(t, d, verbs.CQConfig{Depth: 10})
		qps, tds, parents := map[int]*qp{}, map[int]*td{}, map[int]verbs.PD{} // parents by thread domain
		ofTD := map[int][]int{}                                               // queue pairs by thread domain
		pick := func(n int, keys func(int) int) int { return keys(rnd.IntN(n)) }
		create := func(p verbs.PD) *qp {
			q, err := p.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c})
			require.NoError(t, err)
			return q.(*qp)
		}
		grow := 5 // of ten steps make something
		for id := range 2000 {
			if id%200 == 0 {
				grow = 2 + rnd.IntN(7)
			}
			made := rnd.IntN(10) < grow
			switch kind := rnd.IntN(3); {
			case made && kind == 0:
				qps[id] = create(p)
				require.Equal(t, naive.addQP(id), qps[id].uuar.number, "seed %d, step %d", seed, id)
			case made && kind == 1:
				sharing := rnd.IntN(3)
				x, err := d.AllocTD(verbs.TDConfig{Sharing: sharing})
				require.NoError(t, err)
				tds[id] = x.(*td)
				parents[id], err = p.Parent(x)
				require.NoError(t, err)
				require.Equal(t, naive.addTD(id, sharing == 1), tds[id].uuar.number, "seed %d, step %d", seed, id)
			case made && len(naive.tds) > 0:
				of := pick(len(naive.tds), func(i int) int { return naive.tds[i].id })
				qps[id] = create(parents[of])
				naive.qps = append(naive.qps, naiveQP{id, tds[of].uuar.number})
				ofTD[of] = append(ofTD[of], id)
				require.Same(t, tds[of].uuar, qps[id].uuar)
			case !made && kind == 0 && len(naive.tds) > 0:
				of := pick(len(naive.tds), func(i int) int { return naive.tds[i].id })
				for _, q := range ofTD[of] {
					if qps[q] != nil {
						require.NoError(t, qps[q].Close())
						delete(qps, q)
						naive.qps = slices.DeleteFunc(naive.qps, func(x naiveQP) bool { return x.id == q })
					}
				}
				require.NoError(t, parents[of].Close())
				require.NoError(t, tds[of].Close())
				naive.removeTD(of)
			case !made && kind > 0 && len(naive.qps) > 0:
				q := pick(len(naive.qps), func(i int) int { return naive.qps[i].id })
				require.NoError(t, qps[q].Close())
				delete(qps, q)
				naive.qps = slices.DeleteFunc(naive.qps, func(x naiveQP) bool { return x.id == q })
			}
			require.Equal(t, naive.pages(), d.uars.numDynamic, "seed %d, step %d", seed, id)
			if id%100 == 0 {
				checkNaive(t, &naive, d)
			}
		}
		for _, q := range qps {
			require.NoError(t, q.Close())
		}
		for _, x := range naive.tds {
			require.NoError(t, parents[x.id].Close())
			require.NoError(t, tds[x.id].Close())
		}
		assert.Zero(t, d.uars.numDynamic)
		assert.Empty(t, d.uars.free)
		assert.Zero(t, d.uars.unshared)
		assert.Equal(t, map[verbs.DeviceInfo]int{d.info: naive.total / 2}, d.uars.p.uarPages)
	}
}

// checkNaive compares the counters with what naive has open.
func checkNaive(t *testing.T, naive *naiveMLX5, d *device) {
	t.Helper()
	want := map[string]uint64{
		"uar.pages_static": uint64(naive.total / 2), "uar.pages_dynamic": uint64(naive.pages()), "uar.used": 0, "uar.locks": 0,
		"uar.uuars": uint64(naive.total + 2*naive.pages()), "uar.wasted": uint64(naive.total + 2*naive.pages()), // all are in Reset
		"uar.high_latency.uuars": 1, "uar.medium_latency.uuars": uint64(naive.total - naive.low - 1), "uar.low_latency.uuars": uint64(naive.low),
		"uar.dynamic.uuars": uint64(2 * naive.pages()),
	}
	for class, all := range map[string][2]int{
		"high_latency": {0, 1}, "medium_latency": {1, naive.total - naive.low}, "low_latency": {naive.total - naive.low, naive.total}, "dynamic": {naive.total, 1 << 20},
	} {
		n := 0
		for _, q := range naive.qps {
			if q.uuar >= all[0] && q.uuar < all[1] {
				n++
			}
		}
		want["uar."+class+".qps"], want["uar."+class+".used"] = uint64(n), 0
	}
	for _, q := range naive.qps {
		page := q.uuar / 2
		for i := 2 * page; i < 2*page+2; i++ {
			want[fmt.Sprintf("uar.page%d.uuar%d_qps", page, i)] = uint64(naive.qpsOf(i))
		}
	}
	require.Equal(t, want, countersOf(d, "uar."))
}

// countersOf returns the counters of d whose names begin so.
func countersOf(d *device, prefix string) map[string]uint64 {
	all := map[string]uint64{}
	for _, c := range d.Stats().Snapshot() {
		if strings.HasPrefix(c.Name, prefix) {
			all[c.Name] = c.Value
		}
	}
	return all
}
