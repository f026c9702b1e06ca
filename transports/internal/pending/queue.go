// Package pending is the queue of what waits on an endpoint for send resources, as
// the transports share it.
//
// Used by every transport. When an endpoint waits, what it answers then, and when
// resources are back is the transport's own.
package pending

import (
	"slices"

	"github.com/goucx/goucx/uct"
)

// Queue is the tokens that wait on an endpoint, oldest first. The zero value is
// empty. Its owner excludes others from all calls; the handler and the function of
// Purge may make calls of their own.
type Queue struct {
	tokens []uct.Token
	purged bool
}

// Len is how many tokens wait.
func (q *Queue) Len() int { return len(q.tokens) }

// Add queues t.
func (q *Queue) Add(t uct.Token) { q.tokens = append(q.tokens, t) }

// Purge empties the queue and hands each token to f in order, once open has let
// operations go on: nothing waits any more.
func (q *Queue) Purge(open func(), f func(uct.Token)) {
	for len(q.tokens) > 0 {
		ts := q.tokens
		q.tokens, q.purged = nil, true
		open()
		for _, t := range ts {
			f(t)
		}
	}
}

// Offer has h retry what waits, and gives how many operations it consumed.
func (q *Queue) Offer(h uct.Handler) int { return q.OfferSome(h, len(q.tokens)) }

// OfferSome is Offer for the first n tokens.
func (q *Queue) OfferSome(h uct.Handler, n int) int {
	q.purged = false
	k := h.HandlePending(q.tokens[:min(n, len(q.tokens))])
	if !q.purged {
		q.tokens = slices.Delete(q.tokens, 0, max(min(k, len(q.tokens)), 0))
	}
	return k
}
