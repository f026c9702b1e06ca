package ucttest

import (
	"math"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

var pendingCases = []testCase{
	{"first", pendingFirst},
	{"order", pendingOrder},
	{"refuses-others", pendingRefuses},
	{"busy", pendingBusy},
	{"partial", pendingPartial},
	{"purge", pendingPurge},
	{"purge-in-handler", pendingPurgeInHandler},
	{"send-in-purge", pendingSendInPurge},
	{"stream", pendingStream},
	{"two-endpoints", pendingTwo},
	{"unattended", pendingUnattended},
}

// maxFill bounds the messages that a transport accepts without progress.
const maxFill = 1 << 20

// filled is an endpoint without send resources, and its pending tokens.
type filled struct {
	*link
	sent  uint64      // messages accepted, numbered by their header
	queue []uct.Token // pending tokens
	got   sequence
}

// fillUp sends without progress until the endpoint returns NoResource.
func (e *env) fillUp() *filled {
	e.Helper()
	a, b := e.pair()
	e.needs(a, uct.OpAMShort|uct.OpPending, "AM short with pending")
	return e.fillLink(e.connect(a, b))
}

func (e *env) fillLink(l *link) *filled {
	e.Helper()
	f := &filled{link: l.up()}
	l.to.onMessage = func(m message) { f.got.take(l.to, m) }
	st := ok
	for st == ok && f.sent < maxFill {
		st = f.send()
	}
	require.Equal(e, noResource, st, "after %d messages without progress", f.sent)
	return f
}

func (f *filled) send() uct.Status {
	st := f.AMShort(1, f.sent, pattern(24, f.sent))
	if st == ok {
		f.sent++
	}
	return st
}

// add queues n tokens. The transport may refuse the first if its device has released resources
// meanwhile: add then sends until they are used up.
func (f *filled) add(n int) {
	f.env.Helper()
	for range n {
		t := f.from.token()
		st := f.PendingAdd(t)
		for end := ucs.Now().Add(patience); st == ucs.Busy && len(f.queue) == 0 && ucs.Now() < end; st = f.PendingAdd(t) {
			for f.send() == ok {
			}
		}
		require.Equal(f.env, ok, st, "PendingAdd with a full queue")
		f.queue = append(f.queue, t)
	}
}

// offer returns a HandlePending that sends one message for each token, at most most.
func (f *filled) offer(most int) func([]uct.Token) int {
	return func(ts []uct.Token) int {
		if len(ts) > len(f.queue) || !slices.Equal(ts, f.queue[:len(ts)]) {
			f.env.Errorf("tokens %v offered, %v wait", ts, f.queue)
			return 0
		}
		n := 0
		for n < len(ts) && n < most && f.send() == ok {
			n++
		}
		f.queue = f.queue[n:]
		return n
	}
}

// drain progresses until nothing is pending and all messages have arrived.
func (f *filled) drain() {
	f.env.Helper()
	f.env.until("the queue to empty", func() bool {
		return len(f.queue) == 0 && f.got.next == f.sent || f.env.Failed()
	}, f.from, f.to)
}

// pendingFirst: an operation is pending on an endpoint that no other operation has used. Its first
// attempt found the async goroutine at work, so the endpoint has done nothing yet.
func pendingFirst(e *env) {
	a, b, l := e.linked(uct.OpAMShort|uct.OpPending, "AM short with pending")
	sent, came := false, 0
	b.onMessage = func(message) { came++ }
	send := func() uct.Status {
		st := l.AMShort(1, 0, pattern(24, 0))
		sent = sent || st == ok
		return st
	}
	t := a.token()
	waits := false
	a.onPending = func(ts []uct.Token) int {
		if !waits || !slices.Equal(ts, []uct.Token{t}) || send() != ok {
			return 0
		}
		waits = false
		return 1
	}
	e.until("room for the first message", func() bool {
		if !sent && !waits {
			switch st := l.PendingAdd(t); st {
			case ok:
				waits = true
			case ucs.Busy:
				send()
			default:
				require.Fail(e, "PendingAdd on a new endpoint", "%v", st)
			}
		}
		return sent
	}, a, b)
	e.until("the first message", func() bool { return came == 1 }, a, b)
}

// pendingOrder: tokens are passed oldest first, behind what was sent before.
func pendingOrder(e *env) {
	f := e.fillUp()
	f.add(100)
	f.from.onPending = f.offer(100)
	f.drain()
	require.Equal(e, ok, f.post(f.send), "after the queue emptied")
	f.drain()
}

// pendingRefuses: while tokens are pending, each operation returns NoResource.
func pendingRefuses(e *env) {
	f := e.fillUp()
	f.add(1)
	f.from.onPending = func([]uct.Token) int { return 0 }
	ops := f.operations(e.anyRegion(f.to, f.from))
	check := func(when string) {
		for _, op := range ops {
			assert.Equal(e, noResource, op.run(), "%s %s", op.name, when)
		}
	}
	check("with a full queue")
	if f.from == f.to {
		f.to.progress(64)
	} else {
		e.until("all messages", func() bool { return f.got.next == f.sent }, f.to)
		progress(f.from)
	}
	check("with room again, but a token waiting")
	f.from.onPending = f.offer(1)
	f.drain()
	f.to.onMessage = nil
	for _, op := range ops {
		assert.Contains(e, []uct.Status{ok, inProgress}, f.post(op.run), "%s after the queue emptied", op.name)
	}
	e.settle(f.from, f.to)
}

// pendingBusy: if resources are available, PendingAdd returns Busy. While a connection migrates
// there are none.
func pendingBusy(e *env) {
	e.needsPrompt()
	f := e.fillUp()
	f.drain()
	e.until("room", func() bool {
		st := f.PendingAdd(f.from.token())
		f.PendingPurge(func(uct.Token) {})
		return st == ucs.Busy
	}, f.from, f.to)
	require.Equal(e, ok, f.post(f.send))
	f.drain()
}

// pendingPartial: tokens that a handler does not consume keep their place.
func pendingPartial(e *env) {
	f := e.fillUp()
	f.add(10)
	calls := 0
	one := f.offer(1)
	f.from.onPending = func(ts []uct.Token) int {
		if calls++; calls%3 == 0 {
			return 0
		}
		return one(ts)
	}
	f.drain()
	require.GreaterOrEqual(e, calls, 10)
}

// pendingPurge empties the queue in order.
func pendingPurge(e *env) {
	f := e.fillUp()
	f.add(5)
	f.from.onPending = f.offer(5)
	var got []uct.Token
	collect := func(t uct.Token) { got = append(got, t) }
	f.PendingPurge(collect)
	require.Equal(e, f.queue, got)
	f.queue = nil
	f.PendingPurge(collect)
	require.Len(e, got, 5, "a token was purged twice")
	f.drain()
	require.Equal(e, ok, f.post(f.send), "tokens that were purged are still waited for")
	f.drain()
}

// pendingSendInPurge: an operation posted from PendingPurge is not held up by the purged tokens.
// Tokens that are queued meanwhile are purged too.
func pendingSendInPurge(e *env) {
	f := e.fillUp()
	f.add(3)
	if f.from != f.to { // there may be resources that no HandlePending has reported
		e.until("all messages", func() bool { return f.got.next == f.sent }, f.to)
	}
	n := 0
	f.PendingPurge(func(t uct.Token) {
		require.Equal(e, f.queue[0], t)
		if f.queue = f.queue[1:]; n == 0 && f.send() == noResource {
			f.add(1)
		}
		n++
	})
	require.Empty(e, f.queue)
	f.drain()
}

// pendingPurgeInHandler: HandlePending purges and closes the endpoint.
func pendingPurgeInHandler(e *env) {
	f := e.fillUp()
	f.add(3)
	calls := 0
	f.from.onPending = func([]uct.Token) int {
		calls++
		f.PendingPurge(func(uct.Token) { f.queue = f.queue[1:] })
		f.Close()
		return 0
	}
	f.drain()
	e.settle(f.from, f.to)
	require.Equal(e, 1, calls)
	require.Empty(e, f.queue)
}

// pendingStream sends through the queue alone, one message for each token.
func pendingStream(e *env) {
	f := e.fillUp()
	total := f.sent + uint64(e.messages()/20)
	f.from.onPending = f.offer(1 << 20)
	e.until("all messages", func() bool {
		for f.sent+uint64(len(f.queue)) < total && len(f.queue) < 8 {
			t := f.from.token()
			switch st := f.PendingAdd(t); st {
			case ok:
				f.queue = append(f.queue, t)
			case ucs.Busy:
				require.Empty(e, f.queue, "Busy while tokens wait")
				if f.send() == noResource {
					return false
				}
			default:
				require.Equal(e, ok, st)
			}
		}
		return f.got.next == total || e.Failed()
	}, f.from, f.to)
}

// pendingTwo: a full endpoint with pending tokens does not block another one of the same iface
// forever, and each gets its own tokens.
func pendingTwo(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMShort|uct.OpPending, "AM short with pending")
	f, other := e.fillLink(e.connect(a, b)), e.connect(a, b)
	f.add(3)
	f.from.onPending = f.offer(3)
	var got uint64
	b.onMessage = func(m message) {
		if m.id == 2 {
			got++
			return
		}
		f.got.take(b, m)
	}
	for range 100 {
		require.Equal(e, ok, other.post(func() uct.Status { return other.AMUint64(2, 0, 0) }))
	}
	f.drain()
	e.until("messages of the other endpoint", func() bool { return got == 100 }, a, b)
}

// Parameters of the ResumePending test: how long a call starts operations, and the delay between
// two calls, in which the transport's goroutine receives acknowledgments.
const (
	resumeTurn  = 25 * time.Microsecond
	resumeDelay = 2 * time.Millisecond
)

// pendingUnattended: without Progress, ResumePending passes the pending operations to the handler
// in order, ends soon after its deadline, and receives no message.
func pendingUnattended(e *env) {
	f := e.fillUp()
	iface, is := f.from.iface.(uct.Unattended)
	if !is {
		e.notApplicable("what waits is resumed by Progress alone")
	}
	f.add(500)
	f.from.onPending = f.offer(math.MaxInt)
	back, sent := e.connect(f.to, f.from), false
	received, next, shortest := f.from.received, ucs.Now(), patience
	e.until("the queue to empty", func() bool {
		sent = sent || back.AMShort(2, 0, nil) == ok
		began := ucs.Now()
		if began.Before(next) {
			return false
		}
		waited := len(f.queue)
		f.from.inside = true
		moved, left := iface.ResumePending(began.Add(resumeTurn))
		f.from.inside = false
		next = ucs.Now().Add(resumeDelay)
		if n := waited - len(f.queue); n > 0 {
			shortest = min(shortest, ucs.Now().Sub(began))
			assert.GreaterOrEqual(e, moved, n)
		}
		assert.False(e, left && len(f.queue) == 0, "nothing waits any more")
		return len(f.queue) == 0 || e.Failed()
	}, f.to)
	assert.Equal(e, received, f.from.received, "messages received without Progress")
	if !race.Enabled {
		assert.Less(e, shortest, 50*time.Microsecond, "the shortest turn")
	}
	e.until("the message to the sender", func() bool {
		sent = sent || back.AMShort(2, 0, nil) == ok
		return sent && f.from.received > received
	}, f.from, f.to)
	f.drain()
}
