package ucttest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

var progressCases = []testCase{
	{"budget", progressBudget},
	{"idle", progressIdle},
	{"one-at-a-time", progressOne},
	{"without-sender", progressWithoutSender},
}

// progressBudget: one call processes about budget messages, at most a batch more.
func progressBudget(e *env) {
	a, b, l := e.linked(uct.OpAMShort, "AM short")
	for _, budget := range []int{1, 2, 3, 10, 64, 100} {
		sent := 0
		for sent < 400 && l.AMUint64(1, 0, 0) == ok {
			sent++
		}
		got := 0
		e.until("all messages", func() bool {
			n := b.progress(budget)
			assert.LessOrEqual(e, n, budget+uct.MaxBatch, "budget %d", budget)
			got += n
			if a != b {
				a.progress(1)
			}
			return got >= sent
		})
		require.Len(e, b.inbox, sent)
		b.inbox = nil
	}
}

// progressIdle: Progress returns 0 if there is nothing to do, with and without endpoints.
func progressIdle(e *env) {
	a, b := e.pair()
	require.Zero(e, progress(a, b))
	l := e.connect(a, b)
	e.settle(a, b)
	require.Zero(e, progress(a, b))
	l.Close()
	e.settle(a, b)
	require.Zero(e, progress(a, b))
}

// progressOne: with a budget of 1, no endpoint starves another.
func progressOne(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMShort, "AM short")
	links := []*link{e.connect(a, b), e.connect(a, b), e.connect(a, b)}
	got := make([]int, len(links))
	b.onMessage = func(m message) { got[m.id]++ }
	e.until("messages of every endpoint under load", func() bool {
		for i, l := range links {
			for range 1000 {
				if l.AMUint64(uct.AMID(i), 0, 0) != ok {
					break
				}
			}
		}
		b.progress(1)
		if a != b {
			a.progress(1)
		}
		return min(got[0], got[1], got[2]) >= 100
	})
	b.onMessage = nil
	b.quiet = true
	e.settle(a, b)
}

// progressWithoutSender: an accepted message arrives without another call on the sender's side.
func progressWithoutSender(e *env) {
	a, b, l := e.linked(uct.OpAMShort, "AM short")
	require.Equal(e, ok, l.post(func() uct.Status { return l.AMUint64(1, 0, 0) }))
	e.until("the first message", func() bool { return len(b.inbox) == 1 }, a, b)
	sent := 1
	for sent < 11 && l.AMUint64(1, 0, 0) == ok {
		sent++
	}
	require.Greater(e, sent, 1)
	e.until("messages without progress of their sender", func() bool { return len(b.inbox) == sent }, b)
}
