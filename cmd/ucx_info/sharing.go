package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/ucp/sharing/onverbs"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// sharingAll is the argument of --sharing if none is given: every policy.
const sharingAll = "all"

// sharingView is the account of the objects of a policy, over all processes.
type sharingView struct {
	Policy   string `json:"policy"`
	Contexts int    `json:"contexts"`
	Pages    uint64 `json:"uar_pages"`
	UUARs    uint64 `json:"uuars"`
	Used     uint64 `json:"uuars_used"`
	Wasted   uint64 `json:"uuars_wasted"`
	// Percent is the number of uUARs, in percent of what mpi-everywhere has; 0: that is refused.
	Percent float64 `json:"uuars_percent_of_mpi_everywhere"`
	QPs     uint64  `json:"qps"`
	CQs     uint64  `json:"cqs"`
	// Modelled are the bytes of mlx5's objects, Own those of the software RNIC's.
	Modelled uint64 `json:"modelled_bytes"`
	// WithoutSpares is Modelled after the spare queue pairs and completion queues are closed.
	WithoutSpares uint64   `json:"modelled_bytes_without_spares"`
	Own           uint64   `json:"own_bytes"`
	Reasons       []string `json:"reasons,omitempty"`
	Refused       string   `json:"refused,omitempty"`
}

// sharingPolicies prints --sharing: it creates the objects of a policy, or of all, on a software
// device with the account of mlx5, and shows that account.
func (t *tool) sharingPolicies() error {
	set, err := t.settings()
	if err == nil {
		set, err = set.WithFrom("--sharing", map[string]string{"soft_adapter": "mlx5"})
	}
	if err != nil {
		return err
	}
	conf := transports.SoftConfig(set, nil)
	conf.Link, conf.Engine = soft.LinkInproc, soft.EngineInline
	threads, processes := number(t.threads, 0), number(t.processes, 1)
	in := sharing.Input{Threads: threads, QPs: number(t.qps, 1), Device: sharing.MLX5()}
	if in.Device.ContextPages, err = contextPages(conf); err != nil {
		return err
	}
	var views []sharingView
	base := 0.0 // uUARs of mpi-everywhere, the first policy
	for i, p := range sharing.Policies() {
		shown := t.sharing == sharingAll || strings.EqualFold(t.sharing, p.Name)
		if i > 0 && !shown {
			continue
		}
		v, err := accountOf(p, in, processes, conf)
		if err != nil {
			if shown && t.sharing != sharingAll || !errors.Is(err, ucs.ErrNoResource) {
				return err
			}
			v.Refused = err.Error()
		}
		if i == 0 {
			base = float64(v.UUARs)
		}
		if base > 0 {
			v.Percent = 100 * float64(v.UUARs) / base
		}
		if shown {
			views = append(views, v)
		}
	}
	t.document["sharing"] = views
	if !t.json {
		t.sharingTable(views, in, processes)
	}
	return nil
}

// contextPages returns the number of UAR pages of a context without objects, from its account.
func contextPages(conf soft.Config) (int, error) {
	ctx, err := opener(conf)()
	if err != nil {
		return 0, err
	}
	return int(countersOf(ctx)["uar.pages_static"]), ctx.Close()
}

// opener returns a function that opens contexts of one in-process device.
func opener(conf soft.Config) func() (verbs.Context, error) {
	p := soft.New(conf)
	return func() (verbs.Context, error) {
		infos, err := p.Devices()
		if err != nil {
			return nil, err
		}
		return p.Open(infos[0])
	}
}

func countersOf(c verbs.Context) map[string]uint64 {
	m := map[string]uint64{}
	for _, n := range c.Stats().Snapshot() {
		m[n.Name] = n.Value
	}
	return m
}

// accountOf creates the objects of a policy for each of the processes, on one device, and returns
// their account.
func accountOf(p sharing.Policy, in sharing.Input, processes int, conf soft.Config) (v sharingView, err error) {
	v.Policy = p.Name
	plan, err := p.Plan(in)
	if err != nil {
		return v, err
	}
	v.Reasons = plan.Reasons
	var sets []*onverbs.Set
	defer func() {
		for _, s := range sets {
			err = errors.Join(err, s.Close())
		}
	}()
	open := opener(conf)
	for range processes {
		s, err := onverbs.Create(plan, onverbs.Config{
			Open: open, CQ: verbs.CQConfig{Depth: 1}, QP: verbs.QPConfig{Type: verbs.RC, Caps: verbs.QPCaps{MaxSend: 1, MaxRecv: 1}},
		})
		if err != nil {
			return v, err
		}
		sets = append(sets, s)
		if err := use(s); err != nil {
			return v, err
		}
	}
	for _, s := range sets {
		v.Contexts += len(s.Contexts)
		for _, ctx := range s.Contexts {
			c := countersOf(ctx)
			v.Pages += c["uar.pages_static"] + c["uar.pages_dynamic"]
			v.UUARs += c["uar.uuars"]
			v.Used += c["uar.used"]
			v.Wasted += c["uar.wasted"]
			v.QPs += c["objects.qp"]
			v.CQs += c["objects.cq"]
			v.Modelled += c["modelled.sum"]
			for name, n := range c {
				if strings.HasPrefix(name, "bytes.") {
					v.Own += n
				}
			}
		}
		if err := s.CloseSpares(); err != nil {
			return v, err
		}
		for _, ctx := range s.Contexts {
			v.WithoutSpares += countersOf(ctx)["modelled.sum"]
		}
	}
	return v, nil
}

// use takes the queue pairs of threads from Reset to Init. The account counts their uUARs as used.
func use(s *onverbs.Set) error {
	for _, t := range s.Plan.Threads {
		for _, n := range t.QPs {
			q := s.QPs[n-1]
			if q.Query().State != verbs.StateReset {
				continue // threads share it
			}
			err := q.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1}, verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrAccessFlags)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// sharingTable prints the accounts and the reasons of the plans.
func (t *tool) sharingTable(views []sharingView, in sharing.Input, processes int) {
	t.line("")
	t.line("Resources of %s with %s, %s each, on a device with the account of mlx5", plural(processes, "process", "processes"), plural(in.Threads, "thread", "threads"), plural(in.QPs, "queue pair", "queue pairs"))
	if processes > 1 {
		t.line("The contexts of all processes are opened in this one: each has its own account.")
	}
	t.line("")
	t.line("%-14s %8s %9s %7s %7s %7s %7s %7s %7s %9s %9s", "", "contexts", "UAR pages", "uUARs", "used", "wasted", "use %", "QPs", "CQs", "mlx5 MB", "own KB")
	for _, v := range views {
		if v.Refused != "" {
			t.line("%-14s < refused: %s >", v.Policy, v.Refused)
			continue
		}
		percent := "-"
		if v.Percent > 0 {
			percent = fmt.Sprintf("%.2f", v.Percent)
		}
		t.line("%-14s %8d %9d %7d %7d %7d %7s %7d %7d %9.2f %9.1f", v.Policy, v.Contexts, v.Pages, v.UUARs, v.Used, v.Wasted, percent, v.QPs, v.CQs, mebibytes(v.Modelled), float64(v.Own)/(1<<10))
	}
	t.line("")
	t.line("use %%: uUARs in percent of those of mpi-everywhere; mlx5 MB: of mlx5's contexts, queue pairs and completion queues; own KB: of the software device's objects")
	t.line("")
	for _, v := range views {
		for _, r := range v.Reasons {
			t.line("%s: %s", v.Policy, r)
		}
		if v.WithoutSpares != v.Modelled {
			t.line("%s: without the spare queue pairs and completion queues mlx5 has %.2f MB, which the paper's text counts", v.Policy, mebibytes(v.WithoutSpares))
		}
	}
	t.line("")
}

func mebibytes(n uint64) float64 { return float64(n) / (1 << 20) }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
