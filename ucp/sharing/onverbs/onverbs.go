// Package onverbs creates what a sharing plan names on a verbs device: contexts, domains, completion
// queues and queue pairs. `ucx_info --sharing` shows their account.
package onverbs

import (
	"errors"
	"fmt"

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
	// PDs has a protection domain for each context.
	PDs []verbs.PD
	TDs []verbs.TD
	// Parents has a parent domain for each thread domain. It belongs to the context's protection
	// domain.
	Parents []verbs.PD
	CQs     []verbs.CQ
	QPs     []verbs.QP
}

// Create creates the objects of a plan that Policy.Plan has returned. The caller closes the Set.
// Queue pairs are in state Reset.
//
// Errors: those of the device, ucs.ErrNoResource if it has too few pages. Nothing is left open.
func Create(p *sharing.Plan, c Config) (*Set, error) {
	s := &Set{Plan: p}
	if err := s.create(&c); err != nil {
		return nil, errors.Join(fmt.Errorf("policy %s: %w", p.Policy, err), s.Close())
	}
	return s, nil
}

func (s *Set) create(c *Config) error {
	for i := range s.Plan.Contexts {
		ctx, err := c.Open()
		if err != nil {
			return fmt.Errorf("context %d of %d: %w", i+1, s.Plan.Contexts, err)
		}
		s.Contexts = append(s.Contexts, ctx)
		pd, err := ctx.AllocPD()
		if err != nil {
			return err
		}
		s.PDs = append(s.PDs, pd)
	}
	for i, t := range s.Plan.TDs {
		td, err := s.Contexts[t.Context-1].AllocTD(verbs.TDConfig{Sharing: t.Level})
		if err != nil {
			return fmt.Errorf("thread domain %d of %d: %w", i+1, len(s.Plan.TDs), err)
		}
		s.TDs = append(s.TDs, td)
		parent, err := s.PDs[t.Context-1].Parent(td)
		if err != nil {
			return err
		}
		s.Parents = append(s.Parents, parent)
	}
	for i, q := range s.Plan.CQs {
		conf := c.CQ
		if q.TD != 0 {
			conf.Domain = s.Parents[q.TD-1]
		}
		cq, err := s.Contexts[q.Context-1].CreateCQ(conf)
		if err != nil {
			return fmt.Errorf("completion queue %d of %d: %w", i+1, len(s.Plan.CQs), err)
		}
		s.CQs = append(s.CQs, cq)
	}
	for i, q := range s.Plan.QPs {
		pd := s.PDs[q.Context-1]
		if q.TD != 0 {
			pd = s.Parents[q.TD-1]
		}
		conf := c.QP
		conf.SendCQ, conf.RecvCQ = s.CQs[q.CQ-1], s.CQs[q.CQ-1]
		qp, err := pd.CreateQP(conf)
		if err != nil {
			return fmt.Errorf("queue pair %d of %d: %w", i+1, len(s.Plan.QPs), err)
		}
		s.QPs = append(s.QPs, qp)
	}
	return nil
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
		closeAll(s.QPs), closeAll(s.CQs), closeAll(s.Parents), closeAll(s.TDs), closeAll(s.PDs), closeAll(s.Contexts),
	)
}

func closeAll[T interface{ Close() error }](objects []T) error {
	var errs []error
	for _, o := range objects {
		errs = append(errs, o.Close())
	}
	return errors.Join(errs...)
}
