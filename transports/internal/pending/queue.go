// Package pending implements the pending queue of an endpoint: operations that wait for send
// resources. All transports use it.
//
// The transport decides when an endpoint queues operations, which status it returns then, and
// when resources are free again.
package pending

import (
	"slices"

	"github.com/goucx/goucx/uct"
)

// Queue holds the tokens of an endpoint's pending operations, oldest first. The zero value is
// empty.
//
// Concurrency: the owner serializes all calls. The handler, and the function passed to Purge,
// may call methods of the queue.
type Queue struct {
	tokens []uct.Token
	purged bool
}

// Len returns the number of tokens in the queue.
func (q *Queue) Len() int { return len(q.tokens) }

// Add appends t.
func (q *Queue) Add(t uct.Token) { q.tokens = append(q.tokens, t) }

// Purge removes all tokens and passes them to f in order. Before that it calls open, which lets
// the endpoint accept operations: none is pending then.
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

// Dispatch lets h retry all pending operations and returns how many it consumed.
func (q *Queue) Dispatch(h uct.Handler) int { return q.DispatchSome(h, len(q.tokens)) }

// DispatchSome is Offer for the first n tokens.
func (q *Queue) DispatchSome(h uct.Handler, n int) int {
	q.purged = false
	k := h.HandlePending(q.tokens[:min(n, len(q.tokens))])
	if !q.purged {
		q.tokens = slices.Delete(q.tokens, 0, max(min(k, len(q.tokens)), 0))
	}
	return k
}
