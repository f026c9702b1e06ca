// Package onverbs creates what a sharing plan names on a verbs device: contexts, domains, completion
// queues and queue pairs. `ucx_info --sharing` shows their account, `ucx_perftest -t verbs_rate` their
// message rate.
package onverbs

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/verbs"
)

// Config says how the objects of a plan are created.
type Config struct {
	// Open opens a context of the device, a new one in each call; required.
	Open func() (verbs.Context, error)
	// CQ configures the completion queues but for Domain. CQ.Depth is required.
	CQ verbs.CQConfig
	// QP configures the queue pairs but for SendCQ and RecvCQ.
	QP verbs.QPConfig
}

// Set holds the objects of a plan, each list in the order of the plan: the object with number n has
// index n-1. One goroutine at a time uses the Set; each thread uses its own objects.
type Set struct {
	Plan     *sharing.Plan
	Contexts []verbs.Context
	CQs      []verbs.CQ
	QPs      []verbs.QP

	own, further []verbs.PD // of the contexts, and Plan.PDs
	tds          []verbs.TD
	parents      map[domains]verbs.PD
}

// domains are the protection domain and the thread domain of a parent domain.
type domains struct {
	protection verbs.PD
	td         int
}

// Create creates the objects of a plan that Policy.Plan has returned. The caller closes the Set.
// Queue pairs are in state Reset.
//
// Errors: those of the device, ucs.ErrNoResource if it has too few pages. Nothing is left open.
func Create(p *sharing.Plan, c Config) (*Set, error) {
	s := &Set{Plan: p, parents: map[domains]verbs.PD{}}
	if err := s.create(&c); err != nil {
		return nil, errors.Join(fmt.Errorf("policy %s: %w", p.Policy, err), s.Close())
	}
	return s, nil
}

func (s *Set) create(c *Config) error {
	p := s.Plan
	for i := range p.Contexts {
		ctx, err := c.Open()
		if err != nil {
			return fmt.Errorf("context %d of %d: %w", i+1, p.Contexts, err)
		}
		s.Contexts = append(s.Contexts, ctx)
		pd, err := ctx.AllocPD()
		if err != nil {
			return err
		}
		s.own = append(s.own, pd)
	}
	for i, d := range p.PDs {
		pd, err := s.Contexts[d.Context-1].AllocPD()
		if err != nil {
			return fmt.Errorf("protection domain %d of %d: %w", i+1, len(p.PDs), err)
		}
		s.further = append(s.further, pd)
	}
	for i, t := range p.TDs {
		td, err := s.Contexts[t.Context-1].AllocTD(verbs.TDConfig{Sharing: t.Level})
		if err != nil {
			return fmt.Errorf("thread domain %d of %d: %w", i+1, len(p.TDs), err)
		}
		s.tds = append(s.tds, td)
	}
	for i, q := range p.CQs {
		conf := c.CQ
		if q.TD != 0 {
			var err error
			if conf.Domain, err = s.domain(s.own[q.Context-1], q.TD); err != nil {
				return err
			}
		}
		cq, err := s.Contexts[q.Context-1].CreateCQ(conf)
		if err != nil {
			return fmt.Errorf("completion queue %d of %d: %w", i+1, len(p.CQs), err)
		}
		s.CQs = append(s.CQs, cq)
	}
	for i, q := range p.QPs {
		pd, err := s.domain(s.PD(i+1), q.TD)
		if err != nil {
			return err
		}
		conf := c.QP
		conf.SendCQ, conf.RecvCQ = s.CQs[q.CQ-1], s.CQs[q.CQ-1]
		qp, err := pd.CreateQP(conf)
		if err != nil {
			return fmt.Errorf("queue pair %d of %d: %w", i+1, len(p.QPs), err)
		}
		s.QPs = append(s.QPs, qp)
	}
	return nil
}

// PD returns the protection domain of the queue pair with a number. Memory that the queue pair uses is
// registered in it.
func (s *Set) PD(qp int) verbs.PD {
	q := s.Plan.QP(qp)
	if q.PD != 0 {
		return s.further[q.PD-1]
	}
	return s.own[q.Context-1]
}

// domain returns the domain of objects of a protection domain that are in the thread domain with
// number td: a parent domain, which is made once, or without thread domain the protection domain.
func (s *Set) domain(protection verbs.PD, td int) (verbs.PD, error) {
	if td == 0 {
		return protection, nil
	}
	key := domains{protection, td}
	if p := s.parents[key]; p != nil {
		return p, nil
	}
	p, err := protection.Parent(s.tds[td-1])
	if err == nil {
		s.parents[key] = p
	}
	return p, err
}

// CloseSpares closes the queue pairs that no thread uses, and then the completion queues that no
// queue pair is left for. Both keep their places in the lists.
func (s *Set) CloseSpares() error {
	qps, cqs := make([]bool, len(s.QPs)), make([]bool, len(s.CQs))
	for _, t := range s.Plan.Threads {
		for _, n := range t.QPs {
			qps[n-1], cqs[s.Plan.QP(n).CQ-1] = true, true
		}
	}
	var errs []error
	for i, used := range qps {
		if !used {
			errs = append(errs, s.QPs[i].Close())
		}
	}
	for i, used := range cqs {
		if !used {
			errs = append(errs, s.CQs[i].Close())
		}
	}
	return errors.Join(errs...)
}

// Close closes all objects, and returns the errors joined. Objects that the caller has created in them
// are closed before. Close is idempotent.
func (s *Set) Close() error {
	return errors.Join(
		closeAll(slices.Values(s.QPs)), closeAll(slices.Values(s.CQs)), closeAll(maps.Values(s.parents)), closeAll(slices.Values(s.tds)),
		closeAll(slices.Values(s.further)), closeAll(slices.Values(s.own)), closeAll(slices.Values(s.Contexts)),
	)
}

func closeAll[T interface{ Close() error }](objects iter.Seq[T]) error {
	var errs []error
	for o := range objects {
		errs = append(errs, o.Close())
	}
	return errors.Join(errs...)
}
