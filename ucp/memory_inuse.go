package ucp

import "github.com/goucx/goucx/ucp/internal/request"

// memInUse reports whether an operation of one of the context's ThreadMulti workers
// uses memory of buf. It does not look at other workers: only their own goroutine
// may read their state.
func (x *Context) memInUse(buf []byte) bool {
	x.mu.Lock()
	var ws []*Worker
	for c := range x.owned {
		if w, ok := c.(*Worker); ok && w.t.am.multi {
			ws = append(ws, w)
		}
	}
	x.mu.Unlock()
	for _, w := range ws {
		if w.t.memInUse(buf) {
			return true
		}
	}
	return false
}

func (w *thread) memInUse(buf []byte) bool {
	w.lock()
	defer w.unlock()
	for i := range w.slab.Slots {
		s := &w.slab.Slots[i]
		usesBuffer := s.Op.Sends() || s.Op.Receives() || s.Op == request.Put || s.Op == request.Get
		if s.State != request.StateLive || !usesBuffer {
			continue
		}
		if overlap(w.slab.Bufs[i], buf) {
			return true
		}
		for _, p := range w.slab.vecs[uint32(i)] {
			if overlap(p, buf) {
				return true
			}
		}
	}
	return false
}

// overlap reports whether a and b have a byte in common.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := addressOf(a), addressOf(b)
	return x-y < uint64(len(b)) || y-x < uint64(len(a))
}
