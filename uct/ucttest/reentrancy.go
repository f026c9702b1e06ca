package ucttest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

var reentrancyCases = []testCase{
	{"send", reentrancySend},
	{"batch-memory", reentrancyBatchMemory},
	{"close", reentrancyClose},
	{"close-in-failure", reentrancyCloseInFailure},
}

// reentrancySend replies to every message from within the handler, through the pending queue if
// there is no resource.
func reentrancySend(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMShort|uct.OpPending, "AM short with pending")
	l, back := e.connect(a, b), e.connect(b, a)
	var requested, replied uint64 // next numbers
	var waiting []message         // behind one token
	reply := func(m message) uct.Status { return back.AMUint64(2, m.header, m.header+1) }
	offer := func(ts []uct.Token) int {
		for len(waiting) > 0 && reply(waiting[0]) == ok {
			waiting = waiting[1:]
		}
		if len(waiting) > 0 {
			return 0
		}
		return len(ts)
	}
	b.onPending = offer
	b.onMessage = func(m message) {
		if m.id == 2 { // only if an iface reaches itself
			replied = e.checkReply(m, replied)
			return
		}
		if m.header != requested {
			e.Errorf("question %d after %d", m.header, requested)
		}
		requested++
		if len(waiting) > 0 || reply(m) == noResource {
			if waiting = append(waiting, m); len(waiting) == 1 && back.PendingAdd(b.token()) != ok {
				// Busy: resources are available already.
				if reply(m) != ok {
					e.Errorf("PendingAdd is Busy, but the send has no resource")
				}
				waiting = nil
			}
		}
	}
	if a != b {
		a.onMessage = func(m message) { replied = e.checkReply(m, replied) }
	}
	total := uint64(e.messages() / 10)
	sent := uint64(0)
	e.until("all replies", func() bool {
		for sent < total && sent < replied+512 && l.AMUint64(1, sent, 0) == ok {
			sent++
		}
		return replied == total || e.Failed()
	}, a, b)
}

// checkReply checks a reply and returns the number of the next.
func (e *env) checkReply(m message, next uint64) uint64 {
	if m.header != next || le.Uint64(m.data) != next+1 {
		e.Errorf("reply %d with %x after %d", m.header, m.data, next)
	}
	return next + 1
}

// reentrancyBatchMemory sends from within the handler until resources are exhausted. This must not
// overwrite the message being handled.
func reentrancyBatchMemory(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMShort, "AM short")
	l, back := e.connect(a, b), e.connect(b, a)
	junk := make([]byte, min(a.attr.AM.Short, 256))
	clobber(junk)
	got := 0
	b.onMessage = func(m message) {
		if m.id != 1 {
			return
		}
		for range 100_000 {
			if back.AMShort(2, 0, junk) != ok || l.AMShort(2, 0, junk) != ok {
				break
			}
		}
		assert.True(e, holds(m.data, m.header), "message %d overwritten during HandleAM", m.header)
		got++
	}
	a.quietUnless(b)
	for i := range uint64(8) {
		p := pattern(len(junk), i)
		require.Equal(e, ok, l.post(func() uct.Status { return l.AMShort(1, i, p) }))
	}
	e.until("all messages", func() bool { return got == 8 || e.Failed() }, a, b)
	e.settle(a, b)
}

// quietUnless makes n only count received messages, unless it is the same node as b.
func (n *node) quietUnless(b *node) { n.quiet = n != b }

// reentrancyClose closes endpoints from within HandleAM, in the middle of a batch; messages sent
// before still arrive.
func reentrancyClose(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMShort, "AM short")
	l, back := e.connect(a, b), e.connect(b, a)
	a.quietUnless(b)
	var got sequence
	b.onMessage = func(m message) {
		if m.id == 2 {
			return
		}
		got.take(b, m)
		if m.header == 3 {
			_ = back.AMUint64(2, 0, 0)
			back.Close()
			back.Close()
			if a == b {
				l.Close()
			}
		}
	}
	sent := uint64(0)
	for ; sent < 10; sent++ {
		p := pattern(8, sent)
		st := l.post(func() uct.Status { return l.AMShort(1, sent, p) })
		if st == ucs.Closed && a == b && sent > 3 {
			break // a short queue: the handler has run already
		}
		require.Equal(e, ok, st)
	}
	e.until("all messages", func() bool { return got.next == sent || e.Failed() }, a, b)
	e.settle(a, b)
}

// reentrancyCloseInFailure closes an endpoint from within HandleFailure.
func reentrancyCloseInFailure(e *env) {
	a, b := e.two()
	e.needsFailure(a)
	l := e.connect(a, b)
	a.mayFail = true
	require.Equal(e, ok, l.post(func() uct.Status { return l.AMUint64(1, 0, 0) }))
	e.until("a message", func() bool { return len(b.inbox) == 1 }, a, b)
	a.onFailure = func(f uct.Failure) {
		if f.Endpoint != nil {
			f.Endpoint.Close()
		}
	}
	require.NoError(e, b.close())
	e.until("the failure", func() bool { return len(a.failuresOf(l.Endpoint)) > 0 }, a)
	e.settle(a)
	require.Len(e, a.failuresOf(l.Endpoint), 1)
}
