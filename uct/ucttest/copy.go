package ucttest

import (
	"bytes"
	"syscall"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Cases of uct.Exposer and uct.Fetcher.
var copyCases = []testCase{
	{"sizes", copySizes},
	{"part", copyPart},
	{"refused", copyRefused},
	{"now", copyNow},
	{"withdrawn", copyWithdrawn},
	{"canceled", copyCanceled},
	{"several", copySeveral},
	{"both-ways", copyBothWays},
	{"full", copyFull},
	{"closed", copyClosed},
	{"process", copyProcess},
	{"process-killed", copyProcessKilled},
}

// copier is a link whose receiver fetches what its sender exposes.
type copier struct {
	*link
	exposer uct.Exposer
	fetcher uct.Fetcher
	rxConn  uint32
	last    uint64 // number of the last exposure
}

// fetches returns n as a Fetcher. It ends the case if n is none.
func (e *env) fetches(n *node) uct.Fetcher {
	e.Helper()
	f, fetches := n.iface.(uct.Fetcher)
	if !fetches {
		e.notApplicable("messages are copied by the transport alone")
	}
	require.NotEqual(e, uct.FetchAttr{}, n.attr.Fetch)
	n.copying = true
	return f
}

// copies connects a to b for copies.
func (e *env) copies(a, b *node) *copier {
	e.Helper()
	l := e.connect(a, b)
	x, exposes := l.Endpoint.(uct.Exposer)
	c := &copier{link: l, exposer: x, fetcher: e.fetches(b)}
	require.True(e, exposes, "peers of a Fetcher are Exposers")
	a.copying = true
	require.Equal(e, ok, l.post(func() uct.Status { return l.AMUint64(1, 0, 0) }))
	c.rxConn = l.receive().rxConn
	return c
}

// pairOfCopies is pair, linked for copies.
func (e *env) pairOfCopies() (a, b *node, c *copier) {
	e.Helper()
	a, b = e.pair()
	return a, b, e.copies(a, b)
}

// number returns a new number of an exposure.
func (c *copier) number() uint64 {
	if c.last++; c.last%7 == 0 {
		c.last += 1 << 32 // as a slot that is used again
	}
	return c.last
}

// expose exposes p, and returns its number.
func (c *copier) expose(p []byte, m uct.Mem) uint64 {
	c.env.Helper()
	id := c.number()
	require.Equal(c.env, ok, c.post(func() uct.Status { return c.exposer.Expose(id, p, m) }), "expose")
	return id
}

// fetch starts to fetch exposure id of n bytes to p.
func (c *copier) fetch(id uint64, n int, p []byte, m uct.Mem) (uct.Token, uct.Status) {
	t := c.to.token()
	return t, c.to.sent(t, c.fetcher.Fetch(c.rxConn, id, uint64(n), p, m, t), p)
}

// fetched waits for the end of a fetch that returned st, and returns its status.
func (c *copier) fetched(t uct.Token, st uct.Status) uct.Status {
	c.env.Helper()
	if st != inProgress {
		return st
	}
	f := c.to.inFlightOps[t]
	c.env.until("the event of a fetch", func() bool { return f.ended }, c.from, c.to)
	delete(c.to.inFlightOps, t)
	return f.event.Status
}

// place is memory for a message.
type place struct {
	name string
	mem  uct.Mem
	all  []byte
}

// places returns memory of each kind of n, of size bytes.
func (e *env) places(n *node, size int) (ps []place) {
	e.Helper()
	ps = append(ps, place{name: "heap", all: make([]byte, size)})
	for _, k := range e.kinds(n) {
		m := e.memory(n, k, size, uct.MemRemote)
		ps = append(ps, place{string(k), m, m.Bytes()})
	}
	return ps
}

// copyLengths are around powers of two, among which are the pieces of a copy, and long ones.
func (e *env) copyLengths() (ns []int) {
	for n := 1; n <= 1<<20; n *= 4 {
		ns = append(ns, n, n+1, max(1, n-1))
	}
	return append(ns, 32<<10-1, 32<<10, 32<<10+1, 3<<20+17)
}

const fence = 128 // bytes beside a message that must not change

// copySizes: messages of all lengths are copied whole, from and to all kinds of memory, and nothing beside them changes.
func copySizes(e *env) {
	a, b, c := e.pairOfCopies()
	lengths := e.copyLengths()
	most := lengths[len(lengths)-1]
	for i, src := range e.places(a, most+fence) {
		for k, dst := range e.places(b, most+2*fence) {
			for _, n := range lengths {
				seed := uint64(n<<4 | i<<2 | k)
				clobber(dst.all[:fence+n+fence])
				fill(src.all[:n], seed)
				id := c.expose(src.all[:n], src.mem)
				st := c.fetched(c.fetch(id, n, dst.all[fence:][:n], dst.mem))
				if st == ucs.Unsupported {
					e.Fatalf("%s to %s: this process may not read its own memory", src.name, dst.name)
				}
				require.Equal(e, ok, st, "%d bytes, %s to %s", n, src.name, dst.name)
				c.exposer.Fetched(id)
				require.True(e, holds(dst.all[fence:][:n], seed), "%d bytes, %s to %s", n, src.name, dst.name)
				require.Equal(e, bytes.Repeat([]byte{poison}, fence), dst.all[:fence])
				require.Equal(e, bytes.Repeat([]byte{poison}, fence), dst.all[fence+n:][:fence])
			}
		}
	}
}

// copyPart: a fetch may want the first bytes only.
func copyPart(e *env) {
	_, _, c := e.pairOfCopies()
	n := 100_000
	src, dst := pattern(n, 1), make([]byte, n)
	for _, want := range []int{1, 1000, 32 << 10, n - 1} {
		clobber(dst)
		id := c.expose(src, nil)
		require.Equal(e, ok, c.fetched(c.fetch(id, n, dst[:want], nil)))
		require.Equal(e, src[:want], dst[:want])
		require.Equal(e, bytes.Repeat([]byte{poison}, n-want), dst[want:])
		require.Equal(e, ucs.Busy, c.exposer.Withdraw(id))
	}
}

// copyRefused: what is not exposed is not fetched.
func copyRefused(e *env) {
	_, _, c := e.pairOfCopies()
	n := 50_000
	src, dst := pattern(n, 1), make([]byte, n+1)
	clobber(dst)
	id := c.expose(src, nil)
	for name, f := range map[string]func() (uct.Token, uct.Status){
		"another number":     func() (uct.Token, uct.Status) { return c.fetch(id+1, n, dst[:n], nil) },
		"another generation": func() (uct.Token, uct.Status) { return c.fetch(id+1<<32, n, dst[:n], nil) },
		"another length":     func() (uct.Token, uct.Status) { return c.fetch(id, n-1, dst[:n-1], nil) },
		"more than it has":   func() (uct.Token, uct.Status) { return c.fetch(id, n, dst, nil) },
		"nothing":            func() (uct.Token, uct.Status) { return c.fetch(id, n, nil, nil) },
	} {
		require.Equal(e, ucs.Unsupported, c.fetched(f()), name)
	}
	c.fetcher.Expect(c.rxConn, id+1) // a hint may be wrong
	c.fetcher.Expect(1<<20, id)
	c.fetcher.Expect(c.rxConn, id)
	c.exposer.Fetched(id + 1) // is ignored
	rx := c.rxConn
	c.rxConn = 1 << 20
	require.Equal(e, ucs.Canceled, c.fetched(c.fetch(id, n, dst[:n], nil)), "another connection")
	c.rxConn = rx
	require.Equal(e, bytes.Repeat([]byte{poison}, n+1), dst)
	require.Equal(e, ok, c.exposer.Withdraw(id+1), "another one is ignored")
	require.Equal(e, ok, c.fetched(c.fetch(id, n, dst[:n], nil)))
	require.Equal(e, ucs.Unsupported, c.fetched(c.fetch(id, n, dst[:n], nil)), "it was fetched")
	require.Equal(e, ucs.Busy, c.exposer.Withdraw(id))
	require.Equal(e, ok, c.exposer.Withdraw(id), "the second time")
	require.NotEqual(e, ok, c.exposer.Expose(c.number(), nil, nil), "no memory")
}

// copyNow: a fetch that has ended when it returns.
func copyNow(e *env) {
	a, b, c := e.pairOfCopies()
	if a.attr.Fetch.Heap.From == 0 {
		e.notApplicable("this host permits no copies of all memory")
	}
	e.until("the peer is known to fetch at once", c.exposer.FetchesNow, a, b)
	now := func(id uint64, n int, p []byte) uct.Status { return c.fetcher.FetchNow(c.rxConn, id, uint64(n), p) }
	for _, n := range []int{1, 8, 1024, 32<<10 - 1, 32 << 10, 32<<10 + 1, 64 << 10, 64<<10 + 1} {
		for _, src := range e.places(a, n) {
			copy(src.all, pattern(n, uint64(n)))
			id, dst := c.expose(src.all, src.mem), bytes.Repeat([]byte{poison}, n+fence)
			for name, st := range map[string]uct.Status{
				"another number": now(id+1, n, dst[:n]), "another length": now(id, n+1, dst[:n]), "more": now(id, n, dst[:n+1]), "nothing": now(id, n, nil),
			} {
				require.Equal(e, ucs.Unsupported, st, name)
			}
			require.Equal(e, bytes.Repeat([]byte{poison}, n+fence), dst)
			require.Equal(e, ok, now(id, n, dst[:n]), "%d bytes of %s", n, src.name)
			require.True(e, bytes.Equal(src.all, dst[:n]))
			require.Equal(e, bytes.Repeat([]byte{poison}, fence), dst[n:])
			require.Equal(e, ucs.Unsupported, now(id, n, dst[:n]), "it was fetched")
			require.Equal(e, ucs.Busy, c.exposer.Withdraw(id))
			id = c.expose(src.all, src.mem)
			require.Equal(e, ok, c.exposer.Withdraw(id))
			require.Equal(e, ucs.Unsupported, now(id, n, dst[:n]), "it was withdrawn")
		}
	}
	require.Equal(e, ucs.Canceled, c.fetcher.FetchNow(1<<20, 1, 8, make([]byte, 8)), "another connection")
	e.settle(a, b)
}

// copyWithdrawn: a fetch of memory that was withdrawn fails, at whatever moment that was.
func copyWithdrawn(e *env) {
	a, b, c := e.pairOfCopies()
	n := 1 << 20
	src, dst := pattern(n, 1), make([]byte, n)
	for passes := range 40 {
		id := c.expose(src, nil)
		if passes == 0 {
			require.Equal(e, ok, c.exposer.Withdraw(id))
		}
		t, st := c.fetch(id, n, dst, nil)
		for range passes {
			progress(b, a)
		}
		if f := c.to.inFlightOps[t]; st == ok || f != nil && f.ended && f.event.Status == ok {
			require.Equal(e, ucs.Busy, c.exposer.Withdraw(id))
			require.True(e, bytes.Equal(src, dst))
		} else {
			require.Equal(e, ok, c.exposer.Withdraw(id))
			require.Contains(e, []uct.Status{ucs.Canceled, ucs.Unsupported}, c.fetched(t, st))
		}
	}
	e.settle(a, b)
}

// copyCanceled: a fetch that was canceled has no event and writes no more, and the next one is not disturbed.
func copyCanceled(e *env) {
	a, b, c := e.pairOfCopies()
	n := 1 << 20
	src, dst, next := pattern(n, 1), make([]byte, n), make([]byte, n)
	for passes := range 30 {
		id, other := c.expose(src, nil), c.expose(src, nil)
		clobber(next)
		t, st := c.fetch(id, n, dst, nil)
		u, su := c.fetch(other, n, next, nil)
		for range passes {
			progress(b, a)
		}
		if f := b.inFlightOps[t]; st == inProgress && !f.ended {
			if c.fetcher.CancelFetch(t, passes%2 == 0) == ok {
				delete(b.inFlightOps, t) // an event would be one too many
				clobber(dst)
				require.Equal(e, ok, c.exposer.Withdraw(id))
			} else {
				require.NotZero(e, passes%2, "no peer is stopped")
				require.Equal(e, ucs.Canceled, c.fetched(t, st))
				clobber(dst)
			}
		}
		require.Equal(e, ok, c.fetched(u, su))
		require.True(e, bytes.Equal(src, next))
		e.settle(a, b)
		require.True(e, dst[0] != poison || bytes.Equal(bytes.Repeat([]byte{poison}, n), dst), "written after the cancel")
		c.exposer.Withdraw(id)
		c.exposer.Withdraw(other)
	}
	require.Equal(e, ok, c.fetcher.CancelFetch(b.token(), true), "no such fetch")
}

// copySeveral: many fetches are in progress at once, and each has its event, once.
func copySeveral(e *env) {
	_, _, c := e.pairOfCopies()
	const many = 60
	type one struct {
		id  uint64
		t   uct.Token
		st  uct.Status
		dst []byte
	}
	for round := range 5 {
		var all [many]one
		for i := range all {
			n := 1000 + 7919*i
			all[i].dst = make([]byte, n)
			all[i].id = c.expose(pattern(n, uint64(round*many+i)), nil)
		}
		for i := range all {
			x := &all[many-1-i]
			x.t, x.st = c.fetch(x.id, len(x.dst), x.dst, nil)
		}
		for i := range all {
			x := &all[i]
			require.Equal(e, ok, c.fetched(x.t, x.st))
			require.True(e, holds(x.dst, uint64(round*many+i)))
			require.Equal(e, ucs.Busy, c.exposer.Withdraw(x.id))
		}
	}
}

// copyBothWays: both sides expose and fetch at once.
func copyBothWays(e *env) {
	e.fetches(e.node())
	a, b := e.two()
	there, back := e.copies(a, b), e.copies(b, a)
	for round := range 50 {
		n := 20_000 + 9973*round
		var dst [2][]byte
		var ts [2]uct.Token
		var sts [2]uct.Status
		both := []*copier{there, back}
		for i, c := range both {
			dst[i] = make([]byte, n)
			ts[i], sts[i] = c.fetch(c.expose(pattern(n, uint64(2*round+i)), nil), n, dst[i], nil)
		}
		for i, c := range both {
			require.Equal(e, ok, c.fetched(ts[i], sts[i]))
			require.True(e, holds(dst[i], uint64(2*round+i)))
			require.Equal(e, ucs.Busy, c.exposer.Withdraw(c.last))
		}
	}
}

// copyFull: exposures that find no room are refused, and a withdrawal makes room.
func copyFull(e *env) {
	_, _, c := e.pairOfCopies()
	src, dst := pattern(100, 1), make([]byte, 100)
	ids := []uint64{c.expose(src, nil)}
	for {
		id := c.number()
		st := c.exposer.Expose(id, src, nil)
		if st != ok {
			require.Equal(e, noResource, st)
			break
		}
		ids = append(ids, id)
		require.Less(e, len(ids), 1<<20)
	}
	for _, id := range ids {
		require.Equal(e, ok, c.fetched(c.fetch(id, 100, dst, nil)))
		require.Equal(e, src, dst)
		require.Equal(e, ucs.Busy, c.exposer.Withdraw(id))
	}
	require.Equal(e, ok, c.exposer.Withdraw(c.expose(src, nil)))
}

// copyClosed: the fetches from a peer that closes end, before its end is reported. It exposes nothing afterwards.
func copyClosed(e *env) {
	e.fetches(e.node())
	a, b := e.two()
	c := e.copies(a, b)
	src := pattern(4<<20, 1)
	var ts []uct.Token
	for range 5 {
		dst := make([]byte, len(src))
		t, st := c.fetch(c.expose(src, nil), len(src), dst, nil)
		require.Equal(e, inProgress, st)
		ts = append(ts, t)
	}
	progress(b)
	b.onFailure = func(uct.Failure) {
		for _, t := range ts {
			require.True(e, b.inFlightOps[t].ended, "reported before the end of a fetch")
		}
	}
	a.mayFail, b.mayFail = true, true
	require.NoError(e, a.close())
	e.until("the end of the connection", func() bool { return len(b.failures) > 0 }, b)
	for _, t := range ts {
		require.Contains(e, []uct.Status{ok, ucs.Canceled}, b.inFlightOps[t].event.Status)
		delete(b.inFlightOps, t)
	}
	require.NotEqual(e, ok, c.exposer.Expose(c.number(), src, nil))
	require.Equal(e, ucs.Canceled, c.fetched(c.fetch(c.last, len(src), make([]byte, len(src)), nil)))
}

// copiesFrom returns a copier by which a fetches what the second process exposes.
func (e *env) copiesFrom(p *process) (a *node, c *copier) {
	e.Helper()
	a, l := e.pairWith(p)
	f := e.fetches(a)
	p.send(controlMsg{Op: "send", N: 1})
	e.until("a message", func() bool { return len(a.inbox) > 0 }, a)
	p.awaitReply("send", a)
	l.to = a
	return a, &copier{link: l, fetcher: f, rxConn: a.inbox[0].rxConn}
}

// copyProcess: as copySizes, from memory of another process, which copies too.
func copyProcess(e *env) {
	e.fetches(e.node())
	p := e.spawn()
	a, c := e.copiesFrom(p)
	for _, k := range append([]kind{heap}, e.kinds(a)...) {
		for _, dst := range e.places(a, 2<<20+fence) {
			for _, n := range []int{1, 4000, 32<<10 + 1, 300_000, 2 << 20} {
				id := c.number()
				p.call(controlMsg{Op: "expose", Kind: k, N: uint64(n), Base: id}, a)
				clobber(dst.all[:n+fence])
				st := c.fetched(c.fetch(id, n, dst.all[:n], dst.mem))
				if st == ucs.Unsupported && k != allocated {
					continue // the system does not permit it
				}
				require.Equal(e, ok, st, "%d bytes, %s to %s", n, k, dst.name)
				require.True(e, holds(dst.all[:n], 1), "%d bytes, %s to %s", n, k, dst.name)
				require.Equal(e, bytes.Repeat([]byte{poison}, fence), dst.all[n:][:fence])
				require.Equal(e, uint64(ucs.Busy), p.call(controlMsg{Op: "withdraw", Base: id}, a).N)
			}
		}
	}
}

// copyProcessKilled: the fetches from a process that is killed end, and nothing is written later.
func copyProcessKilled(e *env) {
	e.fetches(e.node())
	p := e.spawn()
	a, c := e.copiesFrom(p)
	a.mayFail = true
	const n = 8 << 20
	id := c.number()
	p.call(controlMsg{Op: "expose", Kind: e.kinds(a)[0], N: n, Base: id}, a)
	dst := make([]byte, n)
	t, st := c.fetch(id, n, dst, nil)
	require.Equal(e, inProgress, st)
	progress(a)
	require.NoError(e, p.cmd.Process.Signal(syscall.SIGKILL))
	<-p.exited
	st = c.fetched(t, st)
	require.Contains(e, []uct.Status{ok, ucs.Canceled}, st)
	clobber(dst)
	e.until("the report of its end", func() bool { return len(a.failures) > 0 }, a)
	e.settle(a)
	require.True(e, bytes.Equal(bytes.Repeat([]byte{poison}, n), dst), "written after its end")
	require.Equal(e, ucs.Canceled, c.fetched(c.fetch(id, n, dst, nil)))
}
