package pending

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

// handler is a uct.Handler that is offered tokens alone.
type handler struct {
	uct.Handler
	offered func(ts []uct.Token) int
}

func (h handler) HandlePending(ts []uct.Token) int { return h.offered(ts) }

func TestQueue(t *testing.T) {
	var q Queue
	for k := range uct.Token(5) {
		q.Add(k)
	}
	offer := func(consume int, want ...uct.Token) {
		t.Helper()
		require.Equal(t, consume, q.Dispatch(handler{offered: func(ts []uct.Token) int {
			require.Equal(t, want, ts)
			return consume
		}}))
	}
	offer(2, 0, 1, 2, 3, 4)
	offer(0, 2, 3, 4)
	offer(-1, 2, 3, 4)
	q.Add(5)
	offer(3, 2, 3, 4, 5)
	offer(9, 5) // more than there are
	require.Zero(t, q.Len())
}

// TestAddWhileOffered: what a handler adds waits behind the rest.
func TestAddWhileOffered(t *testing.T) {
	var q Queue
	q.Add(1)
	q.Add(2)
	q.Dispatch(handler{offered: func([]uct.Token) int {
		q.Add(3)
		return 1
	}})
	require.Equal(t, []uct.Token{2, 3}, q.tokens)
}

// TestPurgeWhileOffered: what a handler adds after it has purged the queue is not
// taken for what it consumed.
func TestPurgeWhileOffered(t *testing.T) {
	var q Queue
	q.Add(1)
	q.Dispatch(handler{offered: func(ts []uct.Token) int {
		q.Purge(func() {}, func(uct.Token) {})
		q.Add(2)
		return len(ts)
	}})
	require.Equal(t, []uct.Token{2}, q.tokens)
}

func TestPurge(t *testing.T) {
	var q Queue
	opened := 0
	open := func() { opened++ }
	q.Purge(open, func(uct.Token) { t.Fatal("nothing waits") })
	require.Zero(t, opened)
	q.Add(1)
	q.Add(2)
	var got []uct.Token
	q.Purge(open, func(k uct.Token) {
		if got = append(got, k); k == 1 {
			require.Zero(t, q.Len())
			q.Add(3)
		}
		if k == 3 {
			require.Equal(t, 2, opened)
		}
	})
	require.Equal(t, []uct.Token{1, 2, 3}, got)
	require.Equal(t, 2, opened)
}
