package soft

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// uarProgram has the objects that a program makes for its threads on one device.
type uarProgram struct {
	t    testing.TB
	p    *Provider
	ctxs []*device
	pds  []*pd
}

func newUARProgram(t testing.TB, conf MLX5) *uarProgram {
	return &uarProgram{t: t, p: New(Config{Link: LinkInproc, Engine: EngineInline, Adapter: &conf})}
}

// context opens a context with a protection domain and a region.
func (u *uarProgram) context() {
	d := opened(u.t, u.p).(*device)
	closeAtEnd(u.t, d)
	p := testPD(u.t, d)
	testMR(u.t, p, 64, 0)
	u.ctxs, u.pds = append(u.ctxs, d), append(u.pds, p)
}

// queue creates a queue pair and a completion queue in the last context; with sharing 1 or
// 2 in a thread domain of their own. A spare queue pair stays in Reset.
func (u *uarProgram) queue(sharing int, spare bool) *qp {
	d := u.ctxs[len(u.ctxs)-1]
	var p verbs.PD = u.pds[len(u.pds)-1]
	if sharing > 0 {
		t, err := d.AllocTD(verbs.TDConfig{Sharing: sharing})
		require.NoError(u.t, err)
		closeAtEnd(u.t, t)
		p, err = p.Parent(t)
		require.NoError(u.t, err)
		closeAtEnd(u.t, p)
	}
	c := testCQ(u.t, d, verbs.CQConfig{Depth: 64})
	x, err := p.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c, Caps: verbs.QPCaps{MaxSend: 128, MaxInline: 128}})
	require.NoError(u.t, err)
	closeAtEnd(u.t, x)
	if !spare {
		require.NoError(u.t, x.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1}, verbs.AttrState|verbs.AttrPort|verbs.AttrPKeyIndex|verbs.AttrAccessFlags))
	}
	return x.(*qp)
}

// sum returns the sum of a counter over the contexts.
func (u *uarProgram) sum(name string) (n int) {
	for _, d := range u.ctxs {
		n += int(countersOf(d, name)[name])
	}
	return n
}

// TestUARPolicies makes what the paper's six categories have for 16 threads.
//
// Source: sections VI and VII, Table I.
func TestUARPolicies(t *testing.T) {
	const threads = 16
	for _, tc := range []struct {
		name                        string
		contexts, each              int // queue pairs of each
		sharing, spare              int
		uuars, pages, wasted, queue int
		percent                     float64
		mb                          string
	}{
		{"mpi-everywhere", threads, 1, 0, 0, 256, 128, 240, 16, 100, "5.39"},
		{"2xdynamic", 1, threads, 1, threads, 80, 40, 64, 32, 31.25, "3.03"},
		{"dynamic", 1, threads, 1, 0, 48, 24, 32, 16, 18.75, "1.64"},
		{"shared-dynamic", 1, threads, 2, 0, 32, 16, 16, 16, 12.5, "1.64"},
		{"static", 1, threads, 0, 0, 16, 8, 1, 16, 6.25, "1.64"},
		{"mpi-threads", 1, 1, 0, 0, 16, 8, 15, 1, 6.25, "0.34"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := newUARProgram(t, MLX5{})
			for range tc.contexts {
				u.context()
				for i := range tc.each + tc.spare {
					u.queue(tc.sharing, tc.spare > 0 && i%2 == 1)
				}
			}
			assert.Equal(t, tc.uuars, u.sum("uar.uuars"), "uUARs")
			assert.Equal(t, tc.pages, u.sum("uar.pages_static")+u.sum("uar.pages_dynamic"), "UAR pages")
			assert.Equal(t, tc.pages, u.p.uarPages[u.ctxs[0].info], "those of the device")
			assert.Equal(t, tc.wasted, u.sum("uar.wasted"), "wasted uUARs")
			assert.Equal(t, tc.uuars-tc.wasted, u.sum("uar.used"), "used uUARs")
			assert.InDelta(t, tc.percent, 100*float64(u.sum("uar.uuars"))/(threads*16), 0, "hardware use")
			assert.Equal(t, tc.queue, u.sum("objects.qp"), "queue pairs")
			assert.Equal(t, tc.queue, u.sum("objects.cq"), "completion queues")
			assert.Equal(t, tc.contexts*256<<10, u.sum("modelled.ctx"))
			assert.Equal(t, tc.contexts*144, u.sum("modelled.pd"))
			assert.Equal(t, tc.contexts*144, u.sum("modelled.mr"))
			assert.Equal(t, tc.queue*80<<10, u.sum("modelled.qp"))
			assert.Equal(t, tc.queue*9<<10, u.sum("modelled.cq"))
			assert.Equal(t, tc.mb, fmt.Sprintf("%.2f", float64(u.sum("modelled.sum"))/(1<<20)), "MB")
		})
	}
}

// TestUARHybrids: several processes with several threads, of which each has two queue pairs
// for a stencil.
//
// Source: section VII, figure 14.
func TestUARHybrids(t *testing.T) {
	for _, tc := range []struct {
		name           string
		sharing, spare int
		uuars          [5]int // 16.1, 8.2, 4.4, 2.8, 1.16
	}{
		{"2xdynamic", 1, 1, [5]int{384, 256, 192, 160, 144}},
		{"dynamic", 1, 0, [5]int{320, 192, 128, 96, 80}},
		{"shared-dynamic", 2, 0, [5]int{288, 160, 96, 64, 48}},
	} {
		for i, processes := range []int{16, 8, 4, 2, 1} {
			u := newUARProgram(t, MLX5{})
			for range processes {
				u.context()
				for range 16 / processes * 2 {
					u.queue(tc.sharing, false)
					for range tc.spare {
						u.queue(tc.sharing, true)
					}
				}
			}
			assert.Equal(t, tc.uuars[i], u.sum("uar.uuars"), "%s, %d processes", tc.name, processes)
		}
	}
}

// TestUARStatic: which queue pairs without thread domains share what.
func TestUARStatic(t *testing.T) {
	uuars := func(conf MLX5, n int) (at []int) {
		u := newUARProgram(t, conf)
		u.context()
		for range n {
			at = append(at, u.queue(0, false).uuar.number)
		}
		return at
	}
	// alone returns the queue pairs, from 1 on, that have their page alone.
	alone := func(at []int) (who []int) {
		pages := map[int]int{}
		for _, u := range at {
			pages[u/2]++
		}
		for i, u := range at {
			if pages[u/2] == 1 {
				who = append(who, i+1)
			}
		}
		return who
	}
	assert.Equal(t, []int{12, 13, 14, 15, 1, 2, 3, 4}, uuars(MLX5{}, 8))
	assert.Equal(t, []int{5, 8}, alone(uuars(MLX5{}, 8)))
	at := uuars(MLX5{}, 16)
	assert.Equal(t, []int{12, 13, 14, 15, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1}, at, "the 5th and the 16th on one uUAR")
	shared := 0
	of := map[int]int{}
	at = uuars(MLX5{}, 32)
	for _, u := range at {
		of[u]++
	}
	for _, u := range at {
		if of[u] > 1 {
			shared++
		}
	}
	assert.Equal(t, 28, shared)

	assert.Equal(t, []int{4, 5, 1, 2, 3, 1, 2}, uuars(MLX5{TotalUUARs: "6", LowLatencyUUARs: "2"}, 7), "figure 16")
	assert.Equal(t, []int{1, 2, 3, 4, 5, 0, 0}, uuars(MLX5{TotalUUARs: "5", LowLatencyUUARs: "5"}, 7), "all but one are of low latency")
	assert.Equal(t, []int{1, 2, 3, 1}, uuars(MLX5{TotalUUARs: "4", LowLatencyUUARs: "0"}, 4), "none is")
	assert.Equal(t, []int{12, 13}, uuars(MLX5{TotalUUARs: "24", LowLatencyUUARs: "1"}, 2), "at most 11 are of medium latency")
}

// TestUARThreadDomains: the thread domains of figure 16, and what becomes of the uUAR of one
// that closes.
func TestUARThreadDomains(t *testing.T) {
	d := openTest(t, Config{Adapter: &MLX5{TotalUUARs: "6", LowLatencyUUARs: "2"}})
	alloc := func(sharing int) *td {
		x, err := d.AllocTD(verbs.TDConfig{Sharing: sharing})
		require.NoError(t, err)
		closeAtEnd(t, x)
		return x.(*td)
	}
	first, second, third := alloc(0), alloc(2), alloc(2)
	assert.Equal(t, []int{6, 7, 8}, []int{first.uuar.number, second.uuar.number, third.uuar.number})
	own := alloc(1)
	assert.Equal(t, 10, own.uuar.number, "not the free one of a shared page")
	assert.Equal(t, 9, alloc(2).uuar.number)
	require.NoError(t, first.Close())
	require.NoError(t, first.Close(), "closed before")
	assert.Equal(t, 12, alloc(1).uuar.number)
	assert.Equal(t, 6, alloc(2).uuar.number)
	assert.Equal(t, 4, d.uars.numDynamic)
	require.NoError(t, own.Close())
	assert.Equal(t, 3, d.uars.numDynamic, "a page without thread domains goes back")
	assert.Equal(t, 10, alloc(2).uuar.number)
}

// TestUARLimits: what a context and a device do not have is refused with what is needed and
// what there is.
func TestUARLimits(t *testing.T) {
	u := newUARProgram(t, MLX5{TotalUUARs: "511"})
	open := func() (verbs.Context, error) {
		infos, err := u.p.Devices()
		require.NoError(t, err)
		return u.p.Open(infos[0])
	}
	x, err := open()
	require.NoError(t, err)
	closeAtEnd(t, x)
	d := x.(*device)
	alloc := func(sharing, n int) (last verbs.TD) {
		for range n {
			td, err := d.AllocTD(verbs.TDConfig{Sharing: sharing})
			require.NoError(t, err)
			closeAtEnd(t, td)
			last = td
		}
		return last
	}
	alone := alloc(1, 256)
	_, err = d.AllocTD(verbs.TDConfig{Sharing: 1})
	refused(t, err, ucs.ErrNoResource, "256 of the context have one, which is the limit")
	shared := alloc(2, 512)
	_, err = d.AllocTD(verbs.TDConfig{})
	refused(t, err, ucs.ErrNoResource, "the context has 512 dynamic ones, which is the limit")
	assert.Equal(t, 256+512, int(value(t, d, "objects.td")), "a refused thread domain is not counted")
	require.NoError(t, shared.Close())
	alloc(2, 1)
	_, err = d.AllocTD(verbs.TDConfig{Sharing: 1})
	refused(t, err, ucs.ErrNoResource, "Sharing 2 takes half a page")
	require.NoError(t, alone.Close())
	alloc(1, 1)

	// The device: each context has 256 static pages.
	var all []verbs.Context
	for range (maxUARPages - 256 - 512) / 256 {
		x, err := open()
		require.NoError(t, err)
		closeAtEnd(t, x)
		all = append(all, x)
	}
	_, err = open()
	refused(t, err, ucs.ErrNoResource, "UAR pages: 256, and the contexts of the device have 8192 of 8192")
	_, err = all[0].AllocTD(verbs.TDConfig{})
	refused(t, err, ucs.ErrNoResource, "allocate thread domain: it needs UAR pages: 1")
	require.NoError(t, all[1].Close())
	x, err = open()
	require.NoError(t, err)
	closeAtEnd(t, x)
	assert.Equal(t, maxUARPages, u.p.uarPages[d.info])
}

// TestUARSettings: libmlx5's variables, with its defaults and ranges.
func TestUARSettings(t *testing.T) {
	for _, tc := range []struct {
		total, low      string
		uuars, numOfLow int
		err             string
	}{
		{"", "", 16, 4, ""},
		{"", "15", 16, 15, ""},
		{"", "0", 16, 4, ""}, // at most 11 are of medium latency
		{"13", "", 14, 4, ""},
		{"12", "0", 12, 0, ""},
		{"512", "", 512, 500, ""},
		{"1", "0", 2, 0, ""},
		{"0", "", 0, 0, "MLX5_TOTAL_UUARS=0, want 1 to 512"},
		{"-1", "", 0, 0, "MLX5_TOTAL_UUARS=-1, want 1 to 512"},
		{"513", "", 0, 0, "MLX5_TOTAL_UUARS=513, want 1 to 512"},
		{"8x", "", 0, 0, "MLX5_TOTAL_UUARS=8x, want 1 to 512"},
		{"", "16", 0, 0, "MLX5_NUM_LOW_LAT_UUARS=16, want 0 to 15"},
		{"", "-1", 0, 0, "MLX5_NUM_LOW_LAT_UUARS=-1, want 0 to 15"},
		{"8", "8", 0, 0, "MLX5_NUM_LOW_LAT_UUARS=8, want 0 to 7"},
		{"4", "", 0, 0, "MLX5_NUM_LOW_LAT_UUARS=4 by default, want 0 to 3 of MLX5_TOTAL_UUARS=4"},
	} {
		m := MLX5{TotalUUARs: tc.total, LowLatencyUUARs: tc.low}
		c := Config{Link: LinkInproc, Adapter: &m}
		if tc.err != "" {
			refused(t, c.Validate(), ucs.ErrInvalid, tc.err)
			_, err := New(c).Devices()
			refused(t, err, ucs.ErrInvalid, tc.err)
			continue
		}
		require.NoError(t, c.Validate())
		total, low, err := m.uuars()
		require.NoError(t, err)
		assert.Equal(t, [2]int{tc.uuars, tc.numOfLow}, [2]int{total, low})
	}
}
