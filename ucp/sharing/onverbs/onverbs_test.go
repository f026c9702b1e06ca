package onverbs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/ucp/sharing/onverbs"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// device opens contexts of one in-process device and remembers them.
type device struct {
	p      *soft.Provider
	opened []verbs.Context
}

func newDevice(c soft.Config) *device {
	c.Link, c.Engine = soft.LinkInproc, soft.EngineInline
	return &device{p: soft.New(c)}
}

func (d *device) open() (verbs.Context, error) {
	infos, err := d.p.Devices()
	if err != nil {
		return nil, err
	}
	c, err := d.p.Open(infos[0])
	if err == nil {
		d.opened = append(d.opened, c)
	}
	return c, err
}

func (d *device) config() onverbs.Config {
	return onverbs.Config{Open: d.open, CQ: verbs.CQConfig{Depth: 16}, QP: verbs.QPConfig{Type: verbs.RC}}
}

// sum returns the sum of a counter over all contexts that were opened.
func (d *device) sum(name string) (n uint64) {
	for _, ctx := range d.opened {
		for _, c := range ctx.Stats().Snapshot() {
			if c.Name == name {
				n += c.Value
			}
		}
	}
	return n
}

var objects = []string{"objects.pd", "objects.td", "objects.cq", "objects.qp"}

// Each object of a plan is made, in its context and in its thread domain, and Close leaves none.
func TestCreate(t *testing.T) {
	for _, policy := range sharing.Policies() {
		t.Run(policy.Name, func(t *testing.T) {
			plan, err := policy.Plan(sharing.Input{Threads: 5, QPs: 2})
			require.NoError(t, err)
			d := newDevice(soft.Config{Adapter: &soft.MLX5{}})
			s, err := onverbs.Create(plan, d.config())
			require.NoError(t, err)
			assert.Len(t, d.opened, plan.Contexts)
			assert.EqualValues(t, len(plan.TDs), d.sum("objects.td"))
			assert.EqualValues(t, plan.Contexts+len(plan.TDs), d.sum("objects.pd"), "a protection domain for each context, a parent domain for each thread domain")
			assert.EqualValues(t, len(plan.CQs), d.sum("objects.cq"))
			assert.EqualValues(t, len(plan.QPs), d.sum("objects.qp"))
			assert.Equal(t, len(plan.TDs) > 0, d.sum("uar.dynamic.qps") == uint64(len(plan.QPs)), "queue pairs are in their thread domains")

			require.NoError(t, s.CloseSpares())
			used := 10
			if policy.Name == "mpi-threads" {
				used = 2
			}
			assert.EqualValues(t, used, d.sum("objects.qp"))
			assert.EqualValues(t, used/2, d.sum("objects.cq"))

			require.NoError(t, s.Close())
			require.NoError(t, s.Close(), "it is idempotent")
			for _, o := range objects {
				assert.Zero(t, d.sum(o), o)
			}
		})
	}
}

// What the device refuses is named with the policy, and nothing stays open.
func TestCreateFails(t *testing.T) {
	for says, c := range map[string]struct {
		policy string
		config soft.Config
	}{
		"policy mpi-everywhere: context 1025 of 1030: ":             {"mpi-everywhere", soft.Config{Adapter: &soft.MLX5{}}},
		"policy dynamic: thread domain 257 of 1030: ":               {"dynamic", soft.Config{Adapter: &soft.MLX5{}}},
		"policy shared-dynamic: thread domain 1025 of 1030: ":       {"shared-dynamic", soft.Config{Adapter: &soft.MLX5{}}},
		"policy static: completion queue 9 of 1030: ":               {"static", soft.Config{Limits: soft.Limits{CQs: 8}}},
		"policy static: queue pair 9 of 1030: ":                     {"static", soft.Config{Limits: soft.Limits{QPs: 8}}},
		"policy dynamic: allocate parent domain: 8 are open, which": {"dynamic", soft.Config{Limits: soft.Limits{PDs: 8}}},
	} {
		t.Run(says, func(t *testing.T) {
			policy, err := sharing.Lookup(c.policy)
			require.NoError(t, err)
			plan, err := policy.Plan(sharing.Input{Threads: 1030})
			require.NoError(t, err)
			d := newDevice(c.config)
			_, err = onverbs.Create(plan, d.config())
			require.ErrorIs(t, err, ucs.ErrNoResource)
			require.ErrorContains(t, err, says)
			for _, o := range objects {
				assert.Zero(t, d.sum(o), o)
			}
			again, err := d.open()
			require.NoError(t, err, "the pages are free again")
			require.NoError(t, again.Close())
		})
	}
}
