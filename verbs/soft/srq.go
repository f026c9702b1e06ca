package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// srq is a shared receive queue. Its SGEs are memory of pd, whatever the domains of the
// queue pairs are.
type srq struct {
	recvRing
	d     *device
	pd    *pd
	limit atomic.Uint32 // of the limit event; 0: not armed

	// Guarded by d.mu.
	qps   objects.Uses
	index int // in device.srqs
}

// CreateSRQ creates a shared receive queue.
func (p *pd) CreateSRQ(a verbs.SRQAttr) (verbs.SRQ, error) {
	fail := func(err error) (verbs.SRQ, error) { return nil, fmt.Errorf("create shared receive queue: %w", err) }
	d := p.d
	if err := objects.CheckSRQ(&d.attr, &a); err != nil {
		return fail(err)
	}
	if a.Limit != 0 {
		return fail(fmt.Errorf("limit %d, want 0: SetLimit arms the event: %w", a.Limit, ucs.ErrInvalid))
	}
	s := &srq{d: d, pd: p}
	s.init(a.MaxWR, p.Single())
	s.shared = true
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.Admit(objects.SRQ, d.attr.MaxSRQ); err != nil {
		return fail(err)
	}
	d.srqs.add(s)
	return s, nil
}

// Account returns the account of the queue pairs that use the queue.
func (s *srq) Account() *objects.Uses { return &s.qps }

func (s *srq) indexPtr() *int { return &s.index }

// PostRecv queues receives.
func (s *srq) PostRecv(wrs []verbs.RecvWR) (int, ucs.Status) { return s.post(wrs) }

// pop consumes the next receive. It raises the limit event if fewer receives than the
// limit are left.
func (s *srq) pop(w *recvWQE) bool {
	ok := s.recvRing.pop(w)
	if ok && s.limit.Load() != 0 {
		s.checkLimit()
	}
	return ok
}

// skip removes the receive that peek returned, and raises the event as take does.
func (s *srq) skip() {
	s.recvRing.skip()
	if s.limit.Load() != 0 {
		s.checkLimit()
	}
}

// checkLimit raises the event and disarms it, if fewer receives than the limit are
// left.
func (s *srq) checkLimit() {
	l := s.limit.Load()
	if l != 0 && s.len() < int(l) && s.limit.CompareAndSwap(l, 0) {
		s.d.raise(verbs.AsyncEvent{Type: verbs.EventSRQLimitReached, SRQ: s})
	}
}

// SetLimit arms the event. It is raised at once if fewer receives are queued already.
func (s *srq) SetLimit(n int) ucs.Status {
	if n < 0 || n > s.Query().MaxWR {
		return ucs.InvalidParam
	}
	s.limit.Store(uint32(n))
	s.checkLimit()
	return ucs.OK
}

// Resize changes MaxWR.
func (s *srq) Resize(n int) error {
	if n < 1 || n > s.d.attr.MaxSRQWR {
		return fmt.Errorf("resize shared receive queue: %d, want 1 to %d: %w", n, s.d.attr.MaxSRQWR, ucs.ErrInvalid)
	}
	if l := s.limit.Load(); n < int(l) {
		return fmt.Errorf("resize shared receive queue to %d: its limit is %d: %w", n, l, ucs.ErrInvalid)
	}
	t := s.tail.acquire(s.single)
	held := t - s.head.pos()
	if uint64(n) >= held {
		s.maxLen = uint64(n)
	}
	s.tail.publish(t)
	if uint64(n) < held {
		return fmt.Errorf("resize shared receive queue to %d: %d receives are queued: %w", n, held, ucs.ErrInvalid)
	}
	return nil
}

// Query returns the attributes. Limit is 0 after its event.
func (s *srq) Query() verbs.SRQAttr {
	t := s.tail.acquire(s.single)
	most := s.maxLen
	s.tail.publish(t)
	return verbs.SRQAttr{MaxWR: int(most), MaxSGE: verbs.MaxSGE, Limit: int(s.limit.Load())}
}

// Close frees the queue, after its events have been acknowledged.
func (s *srq) Close() error {
	d := s.d
	d.mu.Lock()
	first, err := s.qps.Close("queue pairs")
	d.mu.Unlock()
	if err != nil {
		return fmt.Errorf("close shared receive queue: %w", err)
	}
	if !first {
		return nil
	}
	d.discardEvents(s)
	d.mu.Lock()
	defer d.mu.Unlock()
	s.addTo(&d.closedCounts)
	d.srqs.remove(s)
	s.pd.Release(objects.SRQ)
	return nil
}
