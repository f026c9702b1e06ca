package nic

import (
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
)

const (
	// HalfOpenMost bounds the half-open connections of an interface, and
	// halfOpenPerSource those that one device has asked for.
	HalfOpenMost      = 4096
	halfOpenPerSource = 256
	// halfOpenFor is how long each is kept at least: a peer that lives confirms it within
	// that time. While all are younger, new ones are not taken, and their peers ask again.
	halfOpenFor = time.Second
)

// HalfOpen lists the connections of an interface that were accepted and not confirmed:
// of which nothing shows that the peer receives. Each holds memory, and anyone can ask
// for one by a single datagram, so their number is bounded, and the oldest is given up
// for a new one.
//
// Invariant: perSource counts the entries of list by source.
//
// Concurrency: one goroutine at a time.
type HalfOpen[T comparable] struct {
	most      int
	list      []halfOpen[T] // the oldest first
	perSource map[Source]int
}

type halfOpen[T comparable] struct {
	conn  T
	from  Source
	since ucs.Time
}

// NewHalfOpen makes an empty list. devMost is how many connections the device can have
// at all: a quarter of them may be half-open.
func NewHalfOpen[T comparable](devMost int) HalfOpen[T] {
	return HalfOpen[T]{most: max(1, min(HalfOpenMost, devMost/4)), perSource: map[Source]int{}}
}

// Len is how many there are.
func (h *HalfOpen[T]) Len() int { return len(h.list) }

// Admit reports whether one more may be accepted from a source, and has the one given up
// that is in its way: the oldest from there, or the oldest of all.
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

// Remove takes a connection out, if it is there: it was confirmed, or has ended.
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
