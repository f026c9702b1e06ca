//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// srq is a shared receive queue.
type srq struct {
	d      *device
	domain *pd
	c      C.struct_goucx_srq

	// Guarded by d.mu.
	qps objects.Uses
}

// CreateSRQ creates a shared receive queue.
func (p *pd) CreateSRQ(a verbs.SRQAttr) (verbs.SRQ, error) {
	fail := func(err error) (verbs.SRQ, error) { return nil, fmt.Errorf("create shared receive queue: %w", err) }
	d := p.d
	if err := objects.CheckSRQ(&d.attr, &a); err != nil {
		return fail(err)
	}
	if a.Limit < 0 || a.Limit > a.MaxWR {
		return fail(fmt.Errorf("limit %d, want 0 to MaxWR: %w", a.Limit, ucs.ErrInvalid))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.admit(objects.SRQ); err != nil {
		return fail(err)
	}
	var c C.struct_ibv_srq_init_attr
	c.attr.max_wr, c.attr.max_sge = C.uint32_t(a.MaxWR), C.uint32_t(max(1, a.MaxSGE))
	s := &srq{d: d, domain: p}
	var err error
	if s.c.srq, err = C.ibv_create_srq(p.c, &c); s.c.srq == nil {
		p.Release(objects.SRQ)
		return fail(memoryFault(err))
	}
	s.c.max_sge = C.uint32_t(min(int(c.attr.max_sge), verbs.MaxSGE))
	if a.Limit > 0 { // creation ignores it
		if code := s.modifyLocked(C.struct_ibv_srq_attr{srq_limit: C.uint32_t(a.Limit)}, C.IBV_SRQ_LIMIT); code != 0 {
			C.ibv_destroy_srq(s.c.srq)
			p.Release(objects.SRQ)
			return fail(fmt.Errorf("limit %d: %w", a.Limit, returned(code)))
		}
	}
	d.srqs[s] = struct{}{}
	d.events.add(s.pointer(), s)
	return s, nil
}

// SetLimit arms the limit event.
func (s *srq) SetLimit(n int) ucs.Status {
	if n < 0 {
		return ucs.InvalidParam
	}
	return status(errnoOf(s.modify(C.struct_ibv_srq_attr{srq_limit: C.uint32_t(n)}, C.IBV_SRQ_LIMIT)))
}

// Resize changes MaxWR.
func (s *srq) Resize(n int) error {
	fail := func(err error) error { return fmt.Errorf("resize shared receive queue to %d: %w", n, err) }
	switch {
	case !s.d.attr.SRQResize:
		return fail(ucs.ErrUnsupported)
	case n < 1 || n > s.d.attr.MaxSRQWR:
		return fail(fmt.Errorf("want 1 to %d: %w", s.d.attr.MaxSRQWR, ucs.ErrInvalid))
	}
	if code := s.modify(C.struct_ibv_srq_attr{max_wr: C.uint32_t(n)}, C.IBV_SRQ_MAX_WR); code != 0 {
		return fail(returned(code))
	}
	return nil
}

// modify returns an error number. That of a closed queue is of an invalid one.
func (s *srq) modify(a C.struct_ibv_srq_attr, mask C.int) C.int {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return s.modifyLocked(a, mask)
}

func (s *srq) modifyLocked(a C.struct_ibv_srq_attr, mask C.int) C.int {
	if s.qps.Closed() {
		return badFD
	}
	return C.ibv_modify_srq(s.c.srq, &a, mask)
}

// Query returns the attributes; zero after Close.
func (s *srq) Query() verbs.SRQAttr {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.qps.Closed() {
		return verbs.SRQAttr{}
	}
	var a C.struct_ibv_srq_attr
	C.ibv_query_srq(s.c.srq, &a)
	return verbs.SRQAttr{MaxWR: int(a.max_wr), MaxSGE: int(a.max_sge), Limit: int(a.srq_limit)}
}

// Account returns the account of the queue pairs that use the queue.
func (s *srq) Account() *objects.Uses { return &s.qps }

// Close destroys the queue.
func (s *srq) Close() error {
	d := s.d
	if first, err := d.beginClose(s, s.pointer(), &s.qps, &s.c.gate); err != nil || !first {
		return closeError("shared receive queue", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.domain.Release(objects.SRQ)
	delete(d.srqs, s)
	d.closedCalls[cntSRQCalls] += uint64(s.c.gate.calls)
	return closeError("shared receive queue", d.freed(C.ibv_destroy_srq(s.c.srq)))
}
