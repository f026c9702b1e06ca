package sharing_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/ucs"
)

func planOf(t *testing.T, policy string, in sharing.Input) *sharing.Plan {
	t.Helper()
	p, err := sharing.Lookup(policy)
	require.NoError(t, err)
	plan, err := p.Plan(in)
	require.NoError(t, err)
	return plan
}

// counts of the objects of a plan.
type counts struct{ contexts, level1, level2, qps, cqs int }

func countsOf(p *sharing.Plan) counts {
	c := counts{contexts: p.Contexts, qps: len(p.QPs), cqs: len(p.CQs)}
	for _, td := range p.TDs {
		if td.Level == 1 {
			c.level1++
		} else {
			c.level2++
		}
	}
	return c
}

func TestSixteenThreads(t *testing.T) {
	want := []struct {
		policy string
		counts counts
	}{
		{"mpi-everywhere", counts{16, 0, 0, 16, 16}},
		{"2xdynamic", counts{1, 32, 0, 32, 32}},
		{"dynamic", counts{1, 16, 0, 16, 16}},
		{"shared-dynamic", counts{1, 0, 16, 16, 16}},
		{"static", counts{1, 0, 0, 16, 16}},
		{"mpi-threads", counts{1, 0, 0, 1, 1}},
	}
	var names []string
	for _, p := range sharing.Policies() {
		names = append(names, p.Name)
	}
	for i, w := range want {
		assert.Equal(t, w.policy, names[i])
		p := planOf(t, w.policy, sharing.Input{Threads: 16, Device: sharing.MLX5()})
		assert.Equal(t, w.counts, countsOf(p), w.policy)
		assert.Equal(t, w.policy == "mpi-threads", p.SharesQPs(), w.policy)
		assert.NotEmpty(t, p.Reasons)
	}
	assert.Len(t, names, len(want))
}

// The stencil of the paper's section VII: 16 threads in P processes, two queue pairs on one CQ each.
func TestStencilHybrids(t *testing.T) {
	for _, h := range []struct{ processes, threads int }{{16, 1}, {8, 2}, {4, 4}, {2, 8}, {1, 16}} {
		for _, w := range []struct {
			policy string
			qps    int // of all processes
		}{
			{"mpi-everywhere", 32},
			{"2xdynamic", 64},
			{"dynamic", 32},
			{"shared-dynamic", 32},
			{"static", 32},
			{"mpi-threads", 2 * h.processes},
		} {
			name := fmt.Sprintf("%d.%d %s", h.processes, h.threads, w.policy)
			p := planOf(t, w.policy, sharing.Input{Threads: h.threads, QPs: 2, Device: sharing.MLX5()})
			assert.Equal(t, w.qps, h.processes*len(p.QPs), name)
			assert.Equal(t, w.qps/2, h.processes*len(p.CQs), name)
			for _, th := range p.Threads {
				assert.Equal(t, p.QP(th.QPs[0]).CQ, p.QP(th.QPs[1]).CQ, name)
			}
		}
	}
}

// Properties of the policies, for any number of threads and queue pairs.
func TestProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		in := sharing.Input{Threads: 1 + r.IntN(300), QPs: 1 + r.IntN(4), Device: sharing.Device{NoTDs: r.IntN(2) == 0}}
		for _, policy := range sharing.Policies() {
			name := fmt.Sprintf("%s of %+v", policy.Name, in)
			p, err := policy.Plan(in)
			require.NoError(t, err, name)
			assert.Equal(t, policy.Name, p.Policy)
			level := map[string]int{"2xdynamic": 1, "dynamic": 1, "shared-dynamic": 2}[policy.Name]
			if in.Device.NoTDs && level != 0 {
				assert.Equal(t, "static", p.Fallback, name)
				assert.Contains(t, p.String(), policy.Name+" (as static): ")
				assert.Contains(t, p.Reasons[0], "no thread domains")
				level = 0
			} else {
				assert.Empty(t, p.Fallback, name)
			}

			used := map[int]bool{} // queue pairs
			for i, th := range p.Threads {
				require.Len(t, th.QPs, in.QPs, name)
				for _, n := range th.QPs {
					q := p.QP(n)
					assert.Equal(t, level, p.TD(q.TD).Level, name)
					assert.Equal(t, policy.Name == "mpi-threads" && i > 0, used[n], name)
					if policy.Name == "mpi-everywhere" {
						assert.Equal(t, i+1, q.Context, name)
					} else {
						assert.Equal(t, 1, q.Context, name)
					}
					if level != 0 {
						assert.Equal(t, n, q.TD, "%s: a thread domain for each queue pair", name)
						assert.Equal(t, p.QP(th.QPs[0]).TD, p.CQ(q.CQ).TD, name)
					} else {
						assert.Zero(t, p.CQ(q.CQ).TD, name)
					}
				}
				for _, n := range th.QPs {
					used[n] = true
				}
			}
			spare := 0
			if policy.Name == "2xdynamic" && !in.Device.NoTDs {
				spare = in.Threads * in.QPs
			}
			for _, th := range p.Threads {
				assert.Len(t, th.Spares, spare/in.Threads, name)
			}
			assert.Equal(t, spare, len(p.QPs)-len(used), name)

			in := in
			in.Threads = 1 + r.IntN(in.Threads)
			less, err := policy.Plan(in)
			require.NoError(t, err, name)
			assert.Equal(t, less.Threads, p.Threads[:in.Threads], "%s: a thread more changes no other's", name)
			assert.Equal(t, less.QPs, p.QPs[:len(less.QPs)], name)
			assert.Equal(t, less.CQs, p.CQs[:len(less.CQs)], name)
			assert.Equal(t, less.TDs, p.TDs[:len(less.TDs)], name)
		}
	}
}

func TestMoreThanTheDeviceHas(t *testing.T) {
	mlx5 := sharing.MLX5()
	for _, c := range []struct {
		policy  string
		most    int // threads
		device  sharing.Device
		message string
	}{
		{"mpi-everywhere", 1024, mlx5, "policy mpi-everywhere: 1025 threads need 8200 UAR pages of the device, and there are 8192: no resource"},
		{"2xdynamic", 128, mlx5, "policy 2xdynamic: 129 threads need 258 thread domains of level 1 in a context, and there are 256: no resource"},
		{"dynamic", 256, mlx5, "need 257 thread domains of level 1 in a context, and there are 256"},
		{"shared-dynamic", 1024, mlx5, "need 513 UAR pages of thread domains in a context, and there are 512"},
		{"dynamic", 92, sharing.Device{Pages: 100, ContextPages: 8}, "need 101 UAR pages of the device, and there are 100"},
	} {
		t.Run(c.policy, func(t *testing.T) {
			planOf(t, c.policy, sharing.Input{Threads: c.most, Device: c.device})
			p, err := sharing.Lookup(c.policy)
			require.NoError(t, err)
			_, err = p.Plan(sharing.Input{Threads: c.most + 1, Device: c.device})
			require.ErrorIs(t, err, ucs.ErrNoResource)
			assert.ErrorContains(t, err, c.message)
		})
	}
	for _, policy := range []string{"static", "mpi-threads"} {
		planOf(t, policy, sharing.Input{Threads: 10000, Device: mlx5})
	}
}

func TestInvalidInput(t *testing.T) {
	dynamic, err := sharing.Lookup("dynamic")
	require.NoError(t, err)
	for _, in := range []sharing.Input{{}, {Threads: -1}, {Threads: 1, QPs: -1}} {
		_, err := dynamic.Plan(in)
		require.ErrorIs(t, err, ucs.ErrInvalid)
		assert.ErrorContains(t, err, "want at least 1")
	}
	_, err = sharing.Policy{Name: "mine"}.Plan(sharing.Input{Threads: 1})
	require.ErrorIs(t, err, ucs.ErrInvalid)
	assert.ErrorContains(t, err, "policy mine: it has no function Assign")
	_, err = sharing.Policy{Name: "mine", Assign: func(sharing.Input) (*sharing.Plan, error) { return nil, nil }}.Plan(sharing.Input{Threads: 1})
	require.ErrorIs(t, err, ucs.ErrInvalid)
	_, err = sharing.Policy{Name: "mine", Assign: func(sharing.Input) (*sharing.Plan, error) { return nil, ucs.ErrBusy }}.Plan(sharing.Input{Threads: 1})
	assert.ErrorIs(t, err, ucs.ErrBusy)
}

func TestLookup(t *testing.T) {
	for _, p := range sharing.Policies() {
		found, err := sharing.Lookup(p.Name)
		require.NoError(t, err)
		assert.Equal(t, p.Name, found.Name)
	}
	p, err := sharing.Lookup(" Shared-Dynamic ")
	require.NoError(t, err)
	assert.Equal(t, "shared-dynamic", p.Name)
	for name, says := range map[string]string{
		"dynamc":     `unknown sharing policy "dynamc"; did you mean dynamic?`,
		"mpi-thread": "did you mean mpi-threads?",
		"warp":       "known are mpi-everywhere, 2xdynamic, dynamic, shared-dynamic, static, mpi-threads",
		"":           "known are",
	} {
		_, err := sharing.Lookup(name)
		require.ErrorIs(t, err, ucs.ErrInvalid)
		assert.ErrorContains(t, err, says)
	}
	name, err := sharing.Parser().Parse("2XDynamic")
	require.NoError(t, err)
	assert.Equal(t, "2xdynamic", sharing.Parser().Format(name))
	_, err = sharing.Parser().Parse("statc")
	assert.ErrorContains(t, err, "did you mean static?")
}

// Check refuses each fault that is put into a good plan of a program's own policy.
func TestCheck(t *testing.T) {
	good := func() *sharing.Plan {
		return &sharing.Plan{
			Contexts: 2,
			PDs:      []sharing.PD{{2}},
			TDs:      []sharing.TD{{1, 1}, {2, 2}, {1, 1}},
			CQs:      []sharing.CQ{{1, 1}, {2, 0}, {1, 0}},
			QPs:      []sharing.QP{{1, 1, 1, 0}, {2, 2, 2, 1}, {1, 0, 3, 0}},
			Threads:  []sharing.Thread{{QPs: []int{1}, Spares: []int{3}}, {QPs: []int{2}}, {QPs: []int{3}}, {QPs: []int{3}}},
		}
	}
	in := sharing.Input{Threads: 4}
	require.NoError(t, good().Check(in))
	for _, c := range []struct {
		says  string
		spoil func(*sharing.Plan, *sharing.Input)
	}{
		{"thread domain 1 uses context 3, and 2 are made", func(p *sharing.Plan, _ *sharing.Input) { p.TDs[0].Context = 3 }},
		{"thread domain 2 has the sharing level 3: want 1 or 2", func(p *sharing.Plan, _ *sharing.Input) { p.TDs[1].Level = 3 }},
		{"thread domain 1 has the sharing level 0", func(p *sharing.Plan, _ *sharing.Input) { p.TDs[0].Level = 0 }},
		{"completion queue 3 uses context 0, and 2 are made", func(p *sharing.Plan, _ *sharing.Input) { p.CQs[2].Context = 0 }},
		{"completion queue 1 uses thread domain 9, and 3 are made", func(p *sharing.Plan, _ *sharing.Input) { p.CQs[0].TD = 9 }},
		{"completion queue 1 is in context 1, and its thread domain 2 in context 2", func(p *sharing.Plan, _ *sharing.Input) { p.CQs[0].TD = 2 }},
		{"queue pair 3 uses context -1, and 2 are made", func(p *sharing.Plan, _ *sharing.Input) { p.QPs[2].Context = -1 }},
		{"queue pair 1 uses thread domain 4, and 3 are made", func(p *sharing.Plan, _ *sharing.Input) { p.QPs[0].TD = 4 }},
		{"queue pair 2 is in context 2, and its thread domain 1 in context 1", func(p *sharing.Plan, _ *sharing.Input) { p.QPs[1].TD = 1 }},
		{"queue pair 1 uses completion queue 0, and 3 are made", func(p *sharing.Plan, _ *sharing.Input) { p.QPs[0].CQ = 0 }},
		{"queue pair 1 is in context 1, and its completion queue 2 in context 2", func(p *sharing.Plan, _ *sharing.Input) { p.QPs[0].CQ = 2 }},
		{"protection domain 1 uses context 3, and 2 are made", func(p *sharing.Plan, _ *sharing.Input) { p.PDs[0].Context = 3 }},
		{"queue pair 2 uses protection domain 2, and 1 are made", func(p *sharing.Plan, _ *sharing.Input) { p.QPs[1].PD = 2 }},
		{"queue pair 1 is in context 1, and its protection domain 1 in context 2", func(p *sharing.Plan, _ *sharing.Input) { p.QPs[0].PD = 1 }},
		{"it has 4 threads: want 5", func(_ *sharing.Plan, in *sharing.Input) { in.Threads = 5 }},
		{"thread 1 has the queue pairs [1]: want 2 of them", func(_ *sharing.Plan, in *sharing.Input) { in.QPs = 2 }},
		{"thread 2 uses queue pair 4, and 3 are made", func(p *sharing.Plan, _ *sharing.Input) { p.Threads[1].QPs[0] = 4 }},
		{"thread 4 uses queue pair 0, and 3 are made", func(p *sharing.Plan, _ *sharing.Input) { p.Threads[3].QPs[0] = 0 }},
		{"thread 1 has queue pair 1 twice", func(p *sharing.Plan, _ *sharing.Input) { p.Threads[0].QPs = []int{1, 1} }},
		{"threads 2 and 3 both use thread domain 2, by queue pair 2", func(p *sharing.Plan, _ *sharing.Input) { p.Threads[2].QPs[0] = 2 }},
		{"threads 1 and 3 both use thread domain 1, by completion queue 1", func(p *sharing.Plan, _ *sharing.Input) { p.QPs[2].CQ = 1 }},
		{"thread 2 uses spare thread domain 0, and 3 are made", func(p *sharing.Plan, _ *sharing.Input) { p.Threads[1].Spares = []int{0} }},
		{"thread domain 1 is a spare of thread 2, and thread 1 uses it", func(p *sharing.Plan, _ *sharing.Input) { p.Threads[1].Spares = []int{1} }},
		{"it has 3 thread domains, and the device has none", func(_ *sharing.Plan, in *sharing.Input) { in.Device.NoTDs = true }},
	} {
		t.Run(c.says, func(t *testing.T) {
			p, in := good(), in
			c.spoil(p, &in)
			policy := sharing.Policy{Name: "mine", Assign: func(sharing.Input) (*sharing.Plan, error) { return p, nil }}
			_, err := policy.Plan(in)
			require.ErrorIs(t, err, ucs.ErrInvalid)
			assert.ErrorContains(t, err, "policy mine: ")
			assert.ErrorContains(t, err, c.says)
		})
	}

	p := good()
	p.TDs[0].Level, p.QPs[2].CQ = 7, 8
	err := p.Check(in)
	assert.ErrorContains(t, err, "level 7")
	assert.ErrorContains(t, err, "completion queue 8", "all faults, not the first")
}
