package nic

import (
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
)

const (
	// MaxHalfOpen is the maximum number of half-open connections of an interface.
	// maxHalfOpenPerSource is the maximum number that one device has requested.
	MaxHalfOpen          = 4096
	maxHalfOpenPerSource = 256
	// halfOpenMinAge is how long a half-open connection is kept at least. A live peer confirms it
	// within that time. While all are younger, new requests are dropped, and their peers
	// retransmit them.
	halfOpenMinAge = time.Second
)

// HalfOpen lists the half-open connections of an interface: accepted, but without a message
// that shows that the peer receives.
//
// A half-open connection holds memory, and anyone can cause one with a single datagram. So
// their number is bounded, and a new one evicts the oldest.
//
// Invariant: perSource counts the entries of list by source.
//
// Concurrency: one goroutine at a time.
type HalfOpen[T comparable] struct {
	limit     int
	list      []halfOpen[T] // oldest first
	perSource map[Source]int
}

type halfOpen[T comparable] struct {
	conn  T
	from  Source
	since ucs.Time
}

// NewHalfOpen returns an empty list. devMost is the maximum number of connections of the
// device: a quarter of them may be half-open.
func NewHalfOpen[T comparable](devMost int) HalfOpen[T] {
	return HalfOpen[T]{limit: max(1, min(MaxHalfOpen, devMost/4)), perSource: map[Source]int{}}
}

// Len returns the number of half-open connections.
func (h *HalfOpen[T]) Len() int { return len(h.list) }

// Admit reports whether one more connection may be accepted from a source. At a limit it evicts
// the oldest of that source, or the oldest of all, with evict. If that is younger than
// halfOpenMinAge, Admit returns false.
func (h *HalfOpen[T]) Admit(from Source, now ucs.Time, evict func(T)) bool {
	i := 0
	switch {
	case h.perSource[from] >= maxHalfOpenPerSource:
		i = slices.IndexFunc(h.list, func(o halfOpen[T]) bool { return o.from == from })
	case len(h.list) < h.limit:
		return true
	}
	o := h.list[i]
	if now.Sub(o.since) < halfOpenMinAge {
		return false
	}
	h.remove(i)
	evict(o.conn)
	return true
}

// Add appends a connection.
func (h *HalfOpen[T]) Add(conn T, from Source, now ucs.Time) {
	h.list = append(h.list, halfOpen[T]{conn, from, now})
	h.perSource[from]++
}

// Remove removes a connection that was confirmed or has ended. It ignores one not in the list.
func (h *HalfOpen[T]) Remove(conn T) {
	if i := slices.IndexFunc(h.list, func(o halfOpen[T]) bool { return o.conn == conn }); i >= 0 {
		h.remove(i)
	}
}

func (h *HalfOpen[T]) remove(i int) {
	from := h.list[i].from
	h.list = slices.Delete(h.list, i, i+1)
	if h.perSource[from]--; h.perSource[from] == 0 {
		delete(h.perSource, from)
	}
}
