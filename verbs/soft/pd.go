package soft

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// pd is a protection domain or a parent domain.
type pd struct {
	d *device
	// protection identifies the protection: the domain itself, or for a parent domain the one
	// that it was allocated in.
	protection *pd
	// parent is the domain that a parent domain was allocated in, td its thread domain.
	// Both may be nil.
	parent *pd
	td     *td

	// Guarded by d.mu.
	children int
	closed   bool
}

// AllocPD allocates a protection domain.
func (d *device) AllocPD() (verbs.PD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(kindPD, d.attr.MaxPD); err != nil {
		return nil, fmt.Errorf("allocate protection domain: %w", err)
	}
	p := &pd{d: d}
	p.protection = p
	return p, nil
}

// single reports whether the objects of the domain are used by one goroutine at a time.
func (p *pd) single() bool { return p.td != nil }

// admit counts one more child. The caller holds d.mu.
func (p *pd) admit(k kind, most int) error {
	if p.closed {
		return fmt.Errorf("the protection domain is closed: %w", ucs.ErrClosed)
	}
	if err := p.d.admit(k, most); err != nil {
		return err
	}
	p.children++
	return nil
}

// release counts one child less. The caller holds d.mu.
func (p *pd) release(k kind) {
	p.d.openObjects[k]--
	p.children--
}

// Parent allocates a parent domain. With a nil td its objects may be used by any
// goroutine.
func (p *pd) Parent(t verbs.TD) (verbs.PD, error) {
	dom, err := ownObjectOrNil[*td](p.d, "thread domain", t)
	if err != nil {
		return nil, fmt.Errorf("allocate parent domain: %w", err)
	}
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if dom != nil && dom.closed {
		return nil, fmt.Errorf("allocate parent domain: the thread domain is closed: %w", ucs.ErrClosed)
	}
	if err := p.admit(kindPD, d.attr.MaxPD); err != nil {
		return nil, fmt.Errorf("allocate parent domain: %w", err)
	}
	if dom != nil {
		dom.parents++
	}
	return &pd{d: d, protection: p.protection, td: dom, parent: p}, nil
}

// Close frees the domain.
func (p *pd) Close() error {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.closed {
		return nil
	}
	if p.children > 0 {
		return fmt.Errorf("close protection domain: %d objects are open: %w", p.children, ucs.ErrBusy)
	}
	p.closed = true
	if p.td != nil {
		p.td.parents--
	}
	if p.parent != nil {
		p.parent.release(kindPD)
	} else {
		d.openObjects[kindPD]--
	}
	return nil
}

// CreateQP creates a queue pair. It replaces the requested sizes by the granted ones.
func (p *pd) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	fail := func(err error) (verbs.QP, error) { return nil, fmt.Errorf("create queue pair: %w", err) }
	d := p.d
	switch c.Type {
	case verbs.RC, verbs.UC, verbs.UD:
	default:
		return fail(fmt.Errorf("type %d: %w", c.Type, ucs.ErrInvalid))
	}
	send, err := ownObject[*cq](d, "send CQ", c.SendCQ)
	if err != nil {
		return fail(err)
	}
	recv, err := ownObject[*cq](d, "receive CQ", c.RecvCQ)
	if err != nil {
		return fail(err)
	}
	shared, err := ownObjectOrNil[*srq](d, "SRQ", c.SRQ)
	if err != nil {
		return fail(err)
	}
	a := &c.Caps
	if shared != nil {
		a.MaxRecv, a.MaxRecvSGE = 0, 0 // as in libibverbs: the SRQ has its own sizes
	}
	for _, l := range []struct {
		name        string
		asked, most int
	}{
		{"MaxSend", a.MaxSend, d.attr.MaxQPWR},
		{"MaxRecv", a.MaxRecv, d.attr.MaxQPWR},
		{"MaxSendSGE", a.MaxSendSGE, verbs.MaxSGE},
		{"MaxRecvSGE", a.MaxRecvSGE, verbs.MaxSGE},
		{"MaxInline", a.MaxInline, d.attr.MaxInline},
	} {
		if l.asked < 0 || l.asked > l.most {
			return fail(fmt.Errorf("%s %d, want 0 to %d: %w", l.name, l.asked, l.most, ucs.ErrInvalid))
		}
	}
	a.MaxSendSGE, a.MaxInline = verbs.MaxSGE, d.attr.MaxInline
	if shared == nil {
		a.MaxRecvSGE = verbs.MaxSGE
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if send.state.Load() == cqClosed || recv.state.Load() == cqClosed || shared != nil && shared.closed {
		return fail(fmt.Errorf("one of its queues is closed: %w", ucs.ErrClosed))
	}
	if err := p.admit(kindQP, d.attr.MaxQP); err != nil {
		return fail(err)
	}
	q, err := d.newQP(p, &c)
	if err != nil {
		p.release(kindQP)
		return fail(err)
	}
	send.users++
	recv.users++
	if shared != nil {
		shared.users++
	}
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
	q.sq.counts.addTo(&d.closedCounts)
	q.pd.release(kindQP)
	q.sendCQ.users--
	q.recvCQ.users--
	if q.srq != nil {
		q.srq.users--
	}
	return nil
}

// td is a thread domain.
type td struct {
	d       *device
	sharing int

	// Guarded by d.mu.
	parents int
	closed  bool
}

const maxSharing = 2

// AllocTD allocates a thread domain.
func (d *device) AllocTD(c verbs.TDConfig) (verbs.TD, error) {
	if c.Sharing < 0 || c.Sharing > maxSharing {
		return nil, fmt.Errorf("allocate thread domain: Sharing %d, want 0 to %d: %w", c.Sharing, maxSharing, ucs.ErrInvalid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(kindTD, 0); err != nil {
		return nil, fmt.Errorf("allocate thread domain: %w", err)
	}
	return &td{d: d, sharing: c.Sharing}, nil
}

// Close frees the domain.
func (t *td) Close() error {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	if t.closed {
		return nil
	}
	if t.parents > 0 {
		return fmt.Errorf("close thread domain: %d parent domains use it: %w", t.parents, ucs.ErrBusy)
	}
	t.closed = true
	t.d.openObjects[kindTD]--
	return nil
}
