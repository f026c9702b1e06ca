package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// srq is a shared receive queue. Its SGEs are memory of pd, whatever the domains of the
// queue pairs are.
type srq struct {
	recvRing
	d     *device
	pd    *pd
	limit atomic.Uint32 // of the limit event; 0: not armed

	// Guarded by d.mu.
	users  int
	closed bool
	index  int // in device.srqs
}

// CreateSRQ creates a shared receive queue.
func (p *pd) CreateSRQ(a verbs.SRQAttr) (verbs.SRQ, error) {
	d := p.d
	switch {
	case a.MaxWR < 1 || a.MaxWR > d.attr.MaxSRQWR:
		return nil, fmt.Errorf("create shared receive queue: MaxWR %d, want 1 to %d: %w", a.MaxWR, d.attr.MaxSRQWR, ucs.ErrInvalid)
	case a.MaxSGE < 0 || a.MaxSGE > verbs.MaxSGE:
		return nil, fmt.Errorf("create shared receive queue: MaxSGE %d, want 0 to %d: %w", a.MaxSGE, verbs.MaxSGE, ucs.ErrInvalid)
	case a.Limit != 0:
		return nil, fmt.Errorf("create shared receive queue: Limit %d, want 0: SetLimit arms the event: %w", a.Limit, ucs.ErrInvalid)
	}
	s := &srq{d: d, pd: p}
	s.init(a.MaxWR, p.single())
	s.shared = true
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.admit(kindSRQ, d.attr.MaxSRQ); err != nil {
		return nil, fmt.Errorf("create shared receive queue: %w", err)
	}
	d.srqs.add(s)
	return s, nil
}

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
	if s.closed {
		d.mu.Unlock()
		return nil
	}
	if s.users > 0 {
		d.mu.Unlock()
		return fmt.Errorf("close shared receive queue: %d queue pairs use it: %w", s.users, ucs.ErrBusy)
	}
	s.closed = true
	d.mu.Unlock()

	d.discardEvents(s)
	d.mu.Lock()
	defer d.mu.Unlock()
	s.addTo(&d.closedCounts)
	d.srqs.remove(s)
	s.pd.release(kindSRQ)
	return nil
}
