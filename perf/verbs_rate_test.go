package perf

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/perf/rte"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// runRate runs verbs_rate on an in-process device with the account of mlx5.
func runRate(t *testing.T, set func(*Params)) *Result {
	t.Helper()
	p := Defaults()
	p.Test, p.Iterations, p.Warmup = "verbs_rate", 640, 128
	set(&p)
	r, err := Run(rateConfig(), rte.Loop{}, p)
	require.NoError(t, err)
	return r
}

func rateConfig() Config {
	return Config{Interval: time.Hour, Adapter: func(blueFlame bool) verbs.Provider {
		return soft.New(soft.Config{Link: soft.LinkInproc, Adapter: &soft.MLX5{ShutUpBF: !blueFlame}})
	}}
}

func figure(t *testing.T, list []Figure, name string) float64 {
	t.Helper()
	for _, f := range list {
		if f.Name == name {
			return f.Value
		}
	}
	require.Fail(t, "no figure "+name)
	return 0
}

// What a message costs follows from the features alone: it is exact for any number of threads, and the
// same under each policy but for the locks.
func TestRateFeatures(t *testing.T) {
	for _, c := range []struct {
		without                                  string
		posts                                    float64 // calls, and locks of queue pairs
		blueFlames, wqeFetches, payloads, signal float64
	}{
		{"", 1. / 32, 0, 1, 0, 1. / 64},
		{"postlist", 1, 1, 0, 0, 1. / 64},
		{"unsignaled", 1. / 32, 0, 1, 0, 1},
		{"inlining", 1. / 32, 0, 1, 1, 1. / 64},
		{"blueflame", 1. / 32, 0, 1, 0, 1. / 64},
		{"postlist,blueflame", 1, 0, 1, 0, 1. / 64},
		{"postlist,unsignaled", 1, 1, 0, 0, 1},
		{"postlist,unsignaled,inlining,blueflame", 1, 0, 1, 1, 1},
	} {
		policies, counts := []string{"", "static", "mpi-threads"}, []int{1, 2}
		if c.without == "" || c.without == "postlist,unsignaled" {
			policies, counts = []string{"", "mpi-everywhere", "2xdynamic", "dynamic", "shared-dynamic", "static", "mpi-threads"}, []int{1, 2, 16}
		}
		for _, policy := range policies {
			for _, threads := range counts {
				t.Run(fmt.Sprintf("without %s/%s/%d", c.without, policy, threads), func(t *testing.T) {
					r := runRate(t, func(p *Params) { p.Without, p.Sharing, p.ThreadCount = c.without, policy, threads })
					locks := c.posts
					if policy == "static" && threads == 16 { // 12 of the 16 queue pairs have uUARs of medium latency
						locks += c.posts * 12 / 16
					}
					for name, want := range map[string]float64{
						"locks": locks, "doorbells": c.posts - c.blueFlames, "blueflames": c.blueFlames,
						"wqe_fetches": c.wqeFetches, "payload_fetches": c.payloads, "cqes": c.signal,
					} {
						assert.InDelta(t, want, figure(t, r.PerMessage, name), 1e-12, name)
					}
				})
			}
		}
	}
}

// Numbers of any other size, and of a last list that is shorter.
func TestRateNumbers(t *testing.T) {
	r := runRate(t, func(p *Params) {
		p.PostList, p.Unsignaled, p.Window, p.ThreadCount, p.Iterations, p.Warmup = 7, 10, 16, 3, 100, 0
	})
	lists := math.Ceil(100. / 7)
	assert.InDelta(t, lists/100, figure(t, r.PerMessage, "locks"), 1e-12)
	assert.InDelta(t, lists/100, figure(t, r.PerMessage, "doorbells"), 1e-12)
	assert.InDelta(t, 10./100, figure(t, r.PerMessage, "cqes"), 1e-12)
	assert.Equal(t, 7, r.Params.PostList)
	assert.Equal(t, 10, r.Params.Unsignaled)
	assert.Equal(t, Short, r.Params.Layout)
	assert.True(t, r.Last.Sum)
}

// x-way sharing: the objects, and the registers that they take.
func TestRateWays(t *testing.T) {
	for ways, want := range map[string]struct{ contexts, qps, cqs, mrs, uuars float64 }{
		"":                      {16, 16, 16, 16, 16 * 18},
		"buf=16":                {16, 16, 16, 16, 16 * 18},
		"ctx=4":                 {4, 16, 16, 16, 4 * (16 + 8)},
		"ctx=16":                {1, 16, 16, 16, 48},
		"pd=8":                  {1, 16, 16, 16, 48},
		"mr=8":                  {1, 16, 16, 2, 48},
		"cq=2":                  {1, 16, 8, 16, 48},
		"ctx=8,cq=8":            {2, 16, 2, 16, 2 * 32},
		"qp=4":                  {1, 4, 4, 16, 16},
		"qp=16,mr=16,buf=16":    {1, 1, 1, 1, 16},
		"qp=3":                  {1, 6, 6, 16, 16},
		"ctx=8,cq=4,pd=2,buf=1": {2, 16, 4, 16, 2 * 32},
	} {
		t.Run(ways, func(t *testing.T) {
			r := runRate(t, func(p *Params) {
				var err error
				if ways != "" {
					p.Ways, err = ParseWays(ways)
				}
				require.NoError(t, err)
				p.ThreadCount, p.Without = 16, "inlining"
			})
			for name, n := range map[string]float64{"contexts": want.contexts, "qps": want.qps, "cqs": want.cqs, "mrs": want.mrs, "uuars": want.uuars} {
				assert.InDelta(t, n, figure(t, r.Resources, name), 0, name)
			}
			assert.InDelta(t, 1./64, figure(t, r.PerMessage, "cqes"), 1e-12)
			assert.InDelta(t, 1, figure(t, r.PerMessage, "payload_fetches"), 1e-12)
		})
	}
}

func TestParseWays(t *testing.T) {
	w, err := ParseWays("qp=2,buf=16,ctx=1")
	require.NoError(t, err)
	assert.Equal(t, Ways{QP: 2, Buf: 16}, w)
	assert.Equal(t, "buf=16,qp=2", w.String())
	p := Params{Ways: w}
	text, err := json.Marshal(p)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"ways":"buf=16,qp=2"`)
	var back Params
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, p, back)
	require.ErrorContains(t, json.Unmarshal([]byte(`{"ways":"qp=0"}`), &back), "want qp=X")
	for text, says := range map[string]string{
		"":         `unknown object ""; known are buf ctx pd mr cq qp`,
		"ctxx=2":   "did you mean ctx?",
		"ctx":      `"ctx": want ctx=X with X of 1-256 threads`,
		"ctx=0":    "want ctx=X",
		"ctx=257":  "want ctx=X",
		"qp=2,pd=": `"pd=": want pd=X`,
	} {
		_, err := ParseWays(text)
		require.ErrorContains(t, err, says)
	}
}

func TestRateRefused(t *testing.T) {
	for says, set := range map[string]func(*Params){
		`verbs_rate: unknown feature "post"; known are postlist unsignaled inlining blueflame`: func(p *Params) { p.Without = "inlining,post" },
		"list of 1025 work requests is out of range":                                           func(p *Params) { p.PostList = 1025 },
		"-1 work requests per completion are out of range":                                     func(p *Params) { p.Unsignaled = -1 },
		"lists of 32 work requests with a completion for 64 need a window of 95, not 64":       func(p *Params) { p.Window = 64 },
		"of at least 1 byte": func(p *Params) { p.Sizes = []int64{0} },
		"has one piece":      func(p *Params) { p.Sizes = []int64{4, 4} },
		"a sharing policy and x-way sharing exclude each other":               func(p *Params) { p.Sharing, p.Ways.CQ = "static", 2 },
		`unknown sharing policy "dynamc"; did you mean dynamic?`:              func(p *Params) { p.Sharing = "dynamc" },
		"ctx=4 is no multiple of cq=8: threads that share a CQ share its CTX": func(p *Params) { p.Ways, p.ThreadCount = Ways{CTX: 4, CQ: 8}, 16 },
		"pd=3 is no multiple of qp=2":                                         func(p *Params) { p.Ways, p.ThreadCount = Ways{PD: 3, QP: 2}, 16 },
		"which poll":                                                          func(p *Params) { p.Sleep = true },
	} {
		t.Run(says, func(t *testing.T) {
			p := Defaults()
			p.Test = "verbs_rate"
			set(&p)
			require.ErrorContains(t, p.Check(), says)
		})
	}

	p := Defaults()
	p.Test, p.ThreadCount, p.Sharing = "verbs_rate", 129, "2xdynamic"
	_, err := Run(rateConfig(), rte.Loop{}, p)
	require.ErrorIs(t, err, ucs.ErrNoResource)
	assert.ErrorContains(t, err, "policy 2xdynamic: ")

	require.NoError(t, runBoth(func(g Group) error {
		p := Defaults()
		p.Test = "verbs_rate"
		_, err := Run(rateConfig(), g, p)
		assert.ErrorContains(t, err, "they are in one process")
		return nil
	}))
}

// Without an account the counts of the device are the same, and there are no registers.
func TestRateWithoutAccount(t *testing.T) {
	p := Defaults()
	p.Test, p.Iterations = "verbs_rate", 640
	devices := inproc(1)
	r, err := Run(Config{Verbs: devices, Interval: time.Hour}, rte.Loop{}, p)
	require.NoError(t, err)
	assert.Zero(t, devices.open.Load())
	assert.InDelta(t, 1, figure(t, r.Resources, "qps"), 0)
	assert.Zero(t, figure(t, r.Resources, "uuars"))
	assert.Equal(t, int64(640), r.Last.Iterations)
	assert.Equal(t, "soft/inproc", r.Transports)
	assert.True(t, strings.HasPrefix(r.Test.Desc, "RDMA write message rate"))
}
