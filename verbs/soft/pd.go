package soft

import (
	"fmt"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// pd is a protection domain or a parent domain.
type pd struct {
	objects.Domain // guarded by d.mu
	d              *device
	// protection identifies the protection: the domain itself, or for a parent domain the one
	// that it was allocated in.
	protection *pd
	td         *td // of a parent domain; nil: none
}

// AllocPD allocates a protection domain.
func (d *device) AllocPD() (verbs.PD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &pd{d: d}
	p.protection = p
	if err := p.Alloc(&d.open, d.attr.MaxPD); err != nil {
		return nil, fmt.Errorf("allocate protection domain: %w", err)
	}
	return p, nil
}

// Parent allocates a parent domain. With a nil td its objects may be used by any
// goroutine.
func (p *pd) Parent(t verbs.TD) (verbs.PD, error) {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	n := &pd{d: d, protection: p.protection}
	dom, err := objects.OwnOrNil[*td](d, "thread domain", t)
	if err == nil {
		err = n.AllocParent(&p.Domain, dom.account(), d.attr.MaxPD)
	}
	if err != nil {
		return nil, fmt.Errorf("allocate parent domain: %w", err)
	}
	n.td = dom
	d.parents++
	return n, nil
}

// Close frees the domain.
func (p *pd) Close() error {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	err := p.Domain.Close(func() error {
		if p.IsParent() {
			p.d.parents--
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("close protection domain: %w", err)
	}
	return nil
}

// CreateQP creates a queue pair. It replaces the requested sizes by the granted ones.
func (p *pd) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	fail := func(err error) (verbs.QP, error) { return nil, fmt.Errorf("create queue pair: %w", err) }
	d := p.d
	queues, err := objects.QueuesOf[*cq, *srq](d, &d.attr, &c)
	if err != nil {
		return fail(err)
	}
	a := &c.Caps
	a.MaxSendSGE, a.MaxInline = verbs.MaxSGE, max(a.MaxInline, min(d.attr.MaxInline, verbs.InlineLen))
	if queues.SRQ == nil {
		a.MaxRecvSGE = verbs.MaxSGE
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if err := queues.CheckOpen(); err != nil {
		return fail(err)
	}
	if err := p.Admit(objects.QP, d.attr.MaxQP); err != nil {
		return fail(err)
	}
	q, err := d.newQP(p, &c, queues)
	if err != nil {
		p.Release(objects.QP)
		return fail(err)
	}
	q.uuar = d.uars.addQP(p.td)
	queues.Add()
	q.sendCQ.useEngine(q.e)
	q.recvCQ.useEngine(q.e)
	return q, nil
}

// releaseQP releases a queue pair that no goroutine can reach any more. It returns after
// the queue pair's events have been acknowledged, and undoes the accounting of
// CreateQP.
func (d *device) releaseQP(q *qp) error {
	d.discardEvents(q)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closedCounts.addAll(&q.counts)
	q.rq.addTo(&d.closedCounts)
	q.addSends(&d.closedCounts)
	d.uars.removeQP(q.uuar)
	q.pd.Release(objects.QP)
	queues := objects.Queues[*cq, *srq]{Send: q.sendCQ, Recv: q.recvCQ, SRQ: q.srq}
	queues.Release()
	q.sendCQ.releaseEngine(q.e)
	q.recvCQ.releaseEngine(q.e)
	return nil
}

// td is a thread domain.
type td struct {
	d    *device
	uuar *uuar // nil without Config.Adapter

	// Guarded by d.mu.
	parents objects.Uses
	e       *engine // of the objects in it; nil: there were none yet
}

// account returns the account of its parent domains; nil without a thread domain.
func (t *td) account() *objects.Uses {
	if t == nil {
		return nil
	}
	return &t.parents
}

// engineFor returns the engine of queue pairs and completion queues that are created in a domain,
// which may be nil. It creates that of a thread domain which has none yet. The caller holds d.mu.
func (d *device) engineFor(p *pd) *engine {
	if p == nil || p.td == nil {
		return &d.own
	}
	if p.td.e == nil {
		p.td.e = d.addEngine()
	}
	return p.td.e
}

// AllocTD allocates a thread domain.
func (d *device) AllocTD(c verbs.TDConfig) (verbs.TD, error) {
	fail := func(err error) (verbs.TD, error) { return nil, fmt.Errorf("allocate thread domain: %w", err) }
	if err := objects.CheckTD(c); err != nil {
		return fail(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.open.Admit(objects.TD, 0); err != nil {
		return fail(err)
	}
	u, err := d.uars.addTD(c.Sharing)
	if err != nil {
		d.open.Release(objects.TD)
		return fail(err)
	}
	return &td{d: d, uuar: u}, nil
}

// Close frees the domain.
func (t *td) Close() error {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	first, err := t.parents.Close("parent domains")
	if err != nil {
		return fmt.Errorf("close thread domain: %w", err)
	}
	if !first {
		return nil
	}
	t.d.uars.removeTD(t.uuar)
	t.d.open.Release(objects.TD)
	if t.e != nil {
		t.d.removeEngine(t.e)
	}
	return nil
}
