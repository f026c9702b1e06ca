package ucttest

import (
	"syscall"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

var processCases = []testCase{
	{"echo", processEcho},
	{"streams", processStreams},
	{"rma", processRMA},
	{"atomics", processAtomics},
	{"wake", processWake},
	{"closed", processClosed},
	{"killed", processKilled},
	{"stopped", processStopped},
}

// processEcho sends one message after the other, which the second process echoes.
func processEcho(e *env) {
	p := e.spawn()
	a, l := e.pairWith(p)
	e.needs(a, uct.OpAMShort, "AM short")
	p.call(controlMsg{Op: "echo"}, a)
	for _, f := range a.forms() {
		_, high := f.limit(a.attr)
		for i := range uint64(e.messages() / 100) {
			data := pattern(min(high, int(i%64)+8), i)
			if f.name == "uint64" {
				data = data[:8]
			}
			if !f.fits(a.attr, len(data)) || len(data) > a.attr.AM.Short {
				continue
			}
			require.Contains(e, []uct.Status{ok, inProgress}, l.post(func() uct.Status { return f.send(l, 5, i, data) }))
			e.until("an echo", func() bool { return len(a.inbox) > 0 }, a)
			require.Len(e, a.inbox, 1)
			require.Equal(e, i, a.inbox[0].header)
			require.True(e, holds(a.inbox[0].data, i))
			a.inbox = nil
		}
	}
}

// processStreams sends both ways at once.
func processStreams(e *env) {
	p := e.spawn()
	a, l := e.pairWith(p)
	e.needs(a, uct.OpAMShort, "AM short")
	total := uint64(e.messages() / 2)
	var got sequence
	a.onMessage = func(m message) { got.take(a, m) }
	p.send(controlMsg{Op: "send", N: total})
	s := newSender(l, 3)
	e.until("both streams", func() bool { return s.sendRun(total) && got.next == total || e.Failed() }, a)
	p.awaitReply("send", a)
	e.until("the second process to have received all", func() bool {
		return p.call(controlMsg{Op: "received"}, a).N == total
	}, a)
}

// remote makes memory of the second process accessible.
func (e *env) remote(p *process, a *node, k kind, n int) *region {
	e.Helper()
	got := p.call(controlMsg{Op: "region", Kind: k, N: uint64(n)}, a)
	r := &region{user: a, base: got.Base, packed: got.Key, key: e.unpack(a, got.Key)}
	r.attr = a.dom.KeyAttr(r.key)
	return r
}

// processRMA puts, gets and revokes memory of another process.
func processRMA(e *env) {
	p := e.spawn()
	a, l := e.pairWith(p)
	if a.attr.Ops&(uct.OpsPut|uct.OpsGet) == 0 {
		e.notApplicable("carries neither put nor get")
	}
	const size = 64 << 10
	for _, k := range e.kinds(a) {
		r := e.remote(p, a, k, size)
		want, seed := pattern(size, 1), uint64(10)
		r.each(putForms, []int{1, 7, 8, 64, 1000, 4096, 50_000}, func(f *rmaForm, n int) {
			seed++
			data := pattern(n, seed)
			require.Equal(e, ok, f.transfer(l, data, r.base+seed, r.key), "%s memory, put %s of %d", k, f.name, n)
			copy(want[seed:], data)
		})
		l.flush()
		require.True(e, string(want) == string(p.call(controlMsg{Op: "bytes"}, a).Data), "%s memory after puts", k)
		r.each(getForms, []int{1, 8, 1000, 50_000}, func(f *rmaForm, n int) {
			data := make([]byte, n)
			require.Equal(e, ok, f.transfer(l, data, r.base+5, r.key), "%s memory, get %s of %d", k, f.name, n)
			require.True(e, string(want[5:5+n]) == string(data), "%s memory, get %s of %d", k, f.name, n)
		})
		for _, span := range outside(r.base, size) {
			l.refuses(r, span[0], int(span[1]))
		}
		p.call(controlMsg{Op: "revoke"}, a)
		l.requireNoAccess(r, r.base, 8)
		l.requireNoAccess(r, r.base, 5000)
		require.True(e, string(want) == string(p.call(controlMsg{Op: "bytes"}, a).Data), "a refused access wrote")
	}
}

// processAtomics adds to one word from both processes at once.
func processAtomics(e *env) {
	p := e.spawn()
	a, _ := e.pairWith(p)
	local := e.connect(e.node(), a).up()
	mem := e.region(a, local.from, e.kinds(a)[0], 4096, uct.MemRemote)
	if !mem.set(8, true).Has(uct.AtomicAdd) {
		e.notApplicable("no 64-bit add")
	}
	n := uint64(a.contended())
	p.send(controlMsg{Op: "add", Key: mem.packed, Base: mem.base, N: n})
	for range n {
		_, err := local.blocking(mem, uct.AtomicAdd, 1, 0, 0)
		require.NoError(e, err)
	}
	p.awaitReply("add", a)
	require.Equal(e, 2*n, le.Uint64(mem.bytes))
}

// processWake blocks on the event descriptor until the other process sends.
func processWake(e *env) {
	p := e.spawn()
	a, _ := e.pairWith(p)
	e.needsEvents(a, uct.EventRecv)
	var got sequence
	a.onMessage = func(m message) { got.take(a, m) }
	for i := uint64(1); i <= 200; i++ {
		a.arm(uct.EventRecv)
		p.send(controlMsg{Op: "send", N: i})
		require.True(e, a.readable(patience), "message %d does not wake", i)
		e.until("the message", func() bool { return got.next == i }, a)
		p.awaitReply("send", a)
	}
}

// processClosed: the other process closes its iface in order.
func processClosed(e *env) {
	p := e.spawn()
	a, l := e.pairWith(p)
	e.needsFailure(a)
	a.mayFail = true
	l.alive(p)
	p.call(controlMsg{Op: "close"}, a)
	assert.NoError(e, l.failed().Err, "the peer closed in order")
	l.requireRefused(nil)
	e.settle(a)
	require.Len(e, a.failuresOf(l.Endpoint), 1)
}

// alive exchanges a message with the second process.
func (l *link) alive(p *process) {
	l.env.Helper()
	s := newSender(l, 4)
	s.number = p.call(controlMsg{Op: "received"}, l.from).N
	next := s.number + 1
	l.post(func() uct.Status { return s.send(1) })
	l.env.until("the second process to receive", func() bool {
		return p.call(controlMsg{Op: "received"}, l.from).N == next
	}, l.from)
}

// lateness is the tolerance for timeouts on a loaded machine.
const lateness = 10 * time.Second

// processKilled: a crash is reported in time, once, with its reason; other peers keep working.
func processKilled(e *env) {
	p := e.spawn()
	a, l := e.pairWith(p)
	e.needsFailure(a)
	other := e.spawn()
	a.mayFail = true
	to := a.join(other)
	l.alive(p)
	to.alive(other)
	p.kill()
	died := ucs.Now()
	f := l.failed()
	assert.Less(e, ucs.Now().Sub(died), lateness+a.attr.FailureWithin)
	assert.ErrorIs(e, f.Err, ucs.ErrPeerFailed)
	l.requireRefused(nil)
	to.alive(other)
	e.settle(a)
	require.Len(e, a.failuresOf(l.Endpoint), 1, "reported more than once")
	l.Close()
	to.alive(other)
}

// processStopped: a stopped peer fills its own queue and stalls no other peer.
func processStopped(e *env) {
	p := e.spawn()
	a, l := e.pairWith(p)
	other := e.spawn()
	to := a.join(other)
	l.alive(p)
	require.NoError(e, p.cmd.Process.Signal(syscall.SIGSTOP))
	defer func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }()
	s := newSender(l, 5)
	s.number = 1
	e.until("the queue towards a stopped process to fill", func() bool { return !s.sendRun(1 << 30) }, a)
	soon := patience
	if w := a.attr.FailureWithin; w > 0 {
		soon = min(soon, w/4) // too short for the peer to count as dead
	}
	end := ucs.Now().Add(soon)
	for n := 0; n < 100 && ucs.Now().Before(end); n++ {
		to.alive(other)
	}
	require.NoError(e, p.cmd.Process.Signal(syscall.SIGCONT))
	sent := s.number
	e.until("messages to arrive after all", func() bool { return p.call(controlMsg{Op: "received"}, a).N == sent }, a)
}
