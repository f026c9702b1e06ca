package ucp

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/uct"
)

// threadSet is the set of a worker's open Threads.
type threadSet struct {
	mu       sync.Mutex
	open     []*Thread              // by their number; nil: free
	plan     *sharing.Plan          // of at least as many threads
	shared   bool                   // by the plan threads share queue pairs
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

// add adds t, a new Thread, with its number and its plan. The number is the lowest that no open Thread has.
func (s *threadSet) add(t *Thread) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := t.worker
	number := slices.Index(s.open, nil)
	if number < 0 {
		number = len(s.open)
	}
	if err := s.planFor(w, number+1); err != nil {
		return err
	}
	p := &s.plan.Threads[number]
	q := s.plan.QP(p.QPs[0])
	t.number, t.plan.shared = number, s.shared
	t.plan.resources.Spares = len(p.Spares)
	switch s.plan.TD(q.TD).Level {
	case 1:
		t.plan.resources.Domain = uct.ExclusiveDomain
	case 2:
		t.plan.resources.Domain = uct.PairedDomain
	default:
		t.plan.resources.Domain = uct.NoDomain
	}
	switch {
	case s.shared && w.mode != ThreadMulti:
		return fmt.Errorf("policy %s: threads share queue pairs behind the worker's lock, which a worker with mode %v does not have: use ThreadMulti: %w", w.sharing.Name, w.mode, ErrInvalid)
	case s.plan.Contexts > 1 && !s.shared:
		var err error
		if t.plan.context, err = s.enter(q.Context, w.t.ifaces); err != nil {
			return fmt.Errorf("policy %s: %w; with policy 2xdynamic threads share the context of their worker", w.sharing.Name, err)
		}
	}
	if number == len(s.open) {
		s.open = append(s.open, nil)
	}
	s.open[number] = t
	return nil
}

// planFor has a plan of the worker's policy made for at least n threads, and for twice as many if the device
// has room for them. It is for two threads at least, since one alone shares nothing. The plan for few threads is
// the beginning of that for more.
func (s *threadSet) planFor(w *Worker, n int) error {
	if s.plan != nil && n <= len(s.plan.Threads) {
		return nil
	}
	in := sharing.Input{Threads: 2 * n, Device: w.threadLimits()}
	plan, err := w.sharing.Plan(in)
	if err != nil && n > 1 {
		in.Threads = n
		plan, err = w.sharing.Plan(in)
	}
	if err != nil {
		return err
	}
	s.plan, s.shared = plan, plan.SharesQPs()
	return nil
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

// close closes the Threads, at the same time: each may wait for its peers.
func (s *threadSet) close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	open := slices.Clone(s.open)
	s.mu.Unlock()
	errs := make([]error, len(open))
	var all sync.WaitGroup
	for i, t := range open {
		if t != nil {
			all.Go(func() { errs[i] = t.Close() })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

func (s *threadSet) remove(t *Thread) {
	s.mu.Lock()
	s.open[t.number] = nil
	if !slices.ContainsFunc(s.open, func(t *Thread) bool { return t != nil }) {
		s.open, s.plan = nil, nil
	}
	s.mu.Unlock()
}
