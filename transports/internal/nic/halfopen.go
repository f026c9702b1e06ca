package nic

import (
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
)

const (
	// HalfOpenMost is the maximum number of half-open connections of an interface.
	// halfOpenPerSource is the maximum number that one device has requested.
	HalfOpenMost      = 4096
	halfOpenPerSource = 256
	// halfOpenFor is how long a half-open connection is kept at least. A live peer confirms it
	// within that time. While all are younger, new requests are dropped, and their peers
	// retransmit them.
	halfOpenFor = time.Second
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
	most      int
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
	return HalfOpen[T]{most: max(1, min(HalfOpenMost, devMost/4)), perSource: map[Source]int{}}
}

// Len returns the number of half-open connections.
func (h *HalfOpen[T]) Len() int { return len(h.list) }

// Admit reports whether one more connection may be accepted from a source. At a limit it evicts
// the oldest of that source, or the oldest of all, with giveUp. If that is younger than
// halfOpenFor, Admit returns false.
func (h *HalfOpen[T]) Admit(from Source, now ucs.Time, giveUp func(T)) bool {
	i := 0
	switch {
	case h.perSource[from] >= halfOpenPerSource:
		i = slices.IndexFunc(h.list, func(o halfOpen[T]) bool { return o.from == from })
	case len(h.list) < h.most:
		return true
	}
	o := h.list[i]
	if now.Sub(o.since) < halfOpenFor {
		return false
	}
	h.remove(i)
	giveUp(o.conn)
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
