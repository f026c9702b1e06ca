package sharing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
)

// Default is the name of the policy that is used if none is named.
const Default = "dynamic"

// fallback is the name of the policy that is used where a device has no thread domains.
const fallback = "static"

// builtin describes a policy of the paper.
type builtin struct {
	name string
	// contexts: each thread has its own context, not one for all.
	contexts bool
	// level is that of the thread domain of each queue pair; 0: there are none.
	level int
	// twice: each thread has spare objects, as many as it uses.
	twice bool
	// shared: all threads use the queue pairs of one.
	shared  bool
	reasons []string
}

// builtins are the policies of the paper, section VI, from the most resources to the fewest. A
// thread has one completion queue for all its queue pairs, and a queue pair its own thread domain, as
// in section VII.
var builtins = []builtin{
	{name: "mpi-everywhere", contexts: true, reasons: []string{
		"a context for each thread, as for separate processes: threads share no UAR page",
		"the lock of the queue pair is taken, since there is no thread domain",
	}},
	{name: "2xdynamic", level: 1, twice: true, reasons: []string{
		"a thread domain of level 1 for each queue pair: a UAR page of its own, and no lock for it",
		"twice as many objects, of which every other one is used: up to 1.15 times as fast on a ConnectX-4, of unknown cause",
	}},
	{name: "dynamic", level: 1, reasons: []string{
		"a thread domain of level 1 for each queue pair: a UAR page of its own, and no lock for it",
	}},
	{name: "shared-dynamic", level: 2, reasons: []string{
		"a thread domain of level 2 for each queue pair: two share a UAR page, and no lock",
	}},
	{name: "static", reasons: []string{
		"the UAR pages of one context, without thread domains: from the 16th on, queue pairs share a uUAR and its lock",
	}},
	{name: "mpi-threads", shared: true, reasons: []string{
		"all threads use the same queue pairs, behind their locks: the fewest resources",
	}},
}

// Policies returns the built-in policies, from the most resources to the fewest.
func Policies() []Policy {
	out := make([]Policy, len(builtins))
	for i := range builtins {
		out[i] = builtins[i].policy()
	}
	return out
}

// Lookup returns the built-in policy with a name, in any case. The error for an unknown name wraps
// ucs.ErrInvalid. It suggests the nearest name, or lists all.
func Lookup(name string) (Policy, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	names := names()
	if i := slices.Index(names, name); i >= 0 {
		return builtins[i].policy(), nil
	}
	if n := config.Nearest(name, names); n != "" {
		return Policy{}, fmt.Errorf("unknown sharing policy %q; did you mean %s?: %w", name, n, ucs.ErrInvalid)
	}
	return Policy{}, fmt.Errorf("unknown sharing policy %q; known are %s: %w", name, strings.Join(names, ", "), ucs.ErrInvalid)
}

// Parser parses the name of a built-in policy, for a setting. The value is the name as Lookup takes
// it.
func Parser() config.Parser[string] {
	return config.Parser[string]{
		Parse: func(text string) (string, error) {
			p, err := Lookup(text)
			return p.Name, err
		},
		Format:  func(name string) string { return name },
		Allowed: "one of " + strings.Join(names(), ", "),
	}
}

func names() []string {
	out := make([]string, len(builtins))
	for i := range builtins {
		out[i] = builtins[i].name
	}
	return out
}

func (b *builtin) policy() Policy { return Policy{Name: b.name, Assign: b.assign} }

func (b *builtin) assign(in Input) (*Plan, error) {
	plan := &Plan{Reasons: slices.Clone(b.reasons)}
	if b.level != 0 && in.Device.NoTDs {
		plan.Fallback = fallback
		b = &builtins[slices.Index(names(), fallback)]
		plan.Reasons = append([]string{"the device has no thread domains: as " + fallback}, b.reasons...)
	}
	for range in.Threads {
		if b.shared && len(plan.Threads) > 0 {
			plan.Threads = append(plan.Threads, Thread{QPs: slices.Clone(plan.Threads[0].QPs)})
			continue
		}
		if b.contexts || plan.Contexts == 0 {
			plan.Contexts++
		}
		t := Thread{QPs: b.addQPs(plan, in.QPs)}
		if b.twice {
			for _, n := range b.addQPs(plan, in.QPs) {
				t.Spares = append(t.Spares, plan.QP(n).TD)
			}
		}
		plan.Threads = append(plan.Threads, t)
	}
	return plan, nil
}

// addQPs adds n queue pairs on a completion queue, in the last context, and returns their numbers.
// The completion queue is in the thread domain of the first.
func (b *builtin) addQPs(p *Plan, n int) []int {
	cq := CQ{Context: p.Contexts}
	if b.level != 0 {
		cq.TD = len(p.TDs) + 1
	}
	p.CQs = append(p.CQs, cq)
	var out []int
	for range n {
		q := QP{Context: p.Contexts, CQ: len(p.CQs)}
		if b.level != 0 {
			p.TDs = append(p.TDs, TD{p.Contexts, b.level})
			q.TD = len(p.TDs)
		}
		p.QPs = append(p.QPs, q)
		out = append(out, len(p.QPs))
	}
	return out
}
