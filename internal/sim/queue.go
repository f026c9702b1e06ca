package sim

import (
	"net/netip"

	"github.com/goucx/goucx/ucs"
)

// event is an arrival or a timer.
type event struct {
	when  ucs.Time
	seq   uint64
	timer *Timer
	pair
	group netip.AddrPort // that it was sent to; not valid: to the node itself
	b     []byte
}

func (e *event) before(o *event) bool {
	return e.when < o.when || e.when == o.when && e.seq < o.seq
}

// queue is a binary heap of events, the next one first. (container/heap would allocate for each
// event.)
type queue []event

func (q *queue) push(e event) {
	h := append(*q, e)
	*q = h
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (q *queue) pop() event {
	h := *q
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], event{}
	h = h[:last]
	*q = h
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && h[down].before(&h[least]) {
				least = down
			}
		}
		if least == i {
			return first
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
