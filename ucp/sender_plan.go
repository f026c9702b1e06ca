package ucp

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"sync"

	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/uct"
)

// threadSet is the set of a worker's open Threads.
type threadSet struct {
	mu       sync.Mutex
	set      map[*Thread]struct{}
	contexts map[int]*threadContext // by number in the plan
}

// threadPlan is what a sharing policy has planned for a Thread.
type threadPlan struct {
	shared    bool           // the Thread uses the worker's lanes, behind its lock
	context   *threadContext // nil: the Thread uses the worker's device contexts
	resources uct.Resources
}

// threadContext are device contexts that were opened for the Threads whose plan names one: a domain for each
// iface of the worker on a network device. On its domains the memory of the worker's context is not registered;
// operations register what they use.
type threadContext struct {
	number, users int
	domains       []openDomain // by index of the iface; without a Domain: the worker's
}

// enter returns the device contexts with a number for one more Thread. It opens them if needed.
func (s *threadSet) enter(number int, ifaces []*workerIface) (*threadContext, error) {
	c := s.contexts[number]
	if c == nil {
		c = &threadContext{number: number, domains: make([]openDomain, len(ifaces))}
		for i, wi := range ifaces {
			if wi.info.Kind != uct.DeviceNet {
				continue
			}
			var err error
			if c.domains[i], err = wi.t.ctx.openDomain(wi.domain.from, wi.domain.info); err != nil {
				return nil, errors.Join(fmt.Errorf("open a device context of %s for a thread: %w", wi.name(), err), c.close())
			}
		}
		if s.contexts == nil {
			s.contexts = make(map[int]*threadContext)
		}
		s.contexts[number] = c
	}
	c.users++
	return c, nil
}

// leave undoes enter. The last Thread closes the contexts; its ifaces are closed.
func (s *threadSet) leave(c *threadContext) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c == nil {
		return nil
	}
	if c.users--; c.users > 0 {
		return nil
	}
	delete(s.contexts, c.number)
	return c.close()
}

func (c *threadContext) close() error {
	var errs []error
	for _, d := range c.domains {
		if d.Domain != nil {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(errs...)
}

// place returns the plan of the next Thread of w, and its number: the lowest that no open
// Thread has. The policy plans for two Threads at least, since one alone shares nothing.
func (s *threadSet) place(w *Worker, p sharing.Policy) (number int, plan threadPlan, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := make(map[int]bool, len(s.set))
	for t := range s.set {
		taken[t.number] = true
	}
	for taken[number] {
		number++
	}
	all, err := p.Plan(sharing.Input{Threads: max(number+1, 2), Device: w.threadLimits()})
	if err != nil {
		return 0, plan, err
	}
	q := all.QP(all.Threads[number].QPs[0])
	plan.shared = all.SharesQPs()
	if all.Contexts > 1 && !plan.shared {
		if plan.context, err = s.enter(q.Context, w.t.ifaces); err != nil {
			return 0, plan, fmt.Errorf("policy %s: %w; with policy 2xdynamic threads share the context of their worker", p.Name, err)
		}
	}
	plan.resources.Spares = len(all.Threads[number].Spares)
	switch all.TD(q.TD).Level {
	case 1:
		plan.resources.Domain = uct.ExclusiveDomain
	case 2:
		plan.resources.Domain = uct.PairedDomain
	default:
		plan.resources.Domain = uct.NoDomain
	}
	return number, plan, nil
}

// threadLimits returns the limits that all devices of the worker keep.
func (w *Worker) threadLimits() (d sharing.Device) {
	least := func(a, b int) int {
		if a == 0 || b == 0 {
			return max(a, b)
		}
		return min(a, b)
	}
	for _, wi := range w.t.ifaces {
		l := wi.domain.Attr().ThreadDomains
		d.NoTDs = d.NoTDs || l.NoTDs
		d.IndependentTDs = least(d.IndependentTDs, l.IndependentTDs)
		d.TDPages = least(d.TDPages, l.TDPages)
		d.Pages = least(d.Pages, l.Pages)
		d.ContextPages = max(d.ContextPages, l.ContextPages)
	}
	return d
}

// all returns the Threads that were open when it was called.
func (s *threadSet) all() iter.Seq[*Thread] {
	if s == nil {
		return func(func(*Thread) bool) {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Keys(maps.Clone(s.set))
}

func (s *threadSet) add(t *Thread) {
	s.mu.Lock()
	s.set[t] = struct{}{}
	s.mu.Unlock()
}

func (s *threadSet) remove(t *Thread) {
	s.mu.Lock()
	delete(s.set, t)
	s.mu.Unlock()
}
