package verbstest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
)

var threadCases = []testCase{
	{"domain", 0, threadDomain},
	{"domain-datagrams", 0, threadDomainDatagrams},
	{"domain-queue", 0, threadDomainQueue},
	{"parent-shares-memory", 0, threadParentShares},
	{"posts", Threads, threadPosts},
	{"polls", Threads, threadPolls},
	{"pairs", Threads, threadPairs},
	{"close-under-load", Threads, threadClose},
	{"deregister-under-load", Threads, threadDeregister},
}

// parent makes a parent domain of the side's, with a thread domain.
func (s *side) parent() verbs.PD {
	s.env.Helper()
	td, err := s.AllocTD(verbs.TDConfig{})
	s.env.unlessSupported(err, "a thread domain")
	s.env.closes("td", td.Close)
	p, err := s.pd.Parent(td)
	s.env.unlessSupported(err, "a parent domain")
	s.env.closes("parent", p.Close)
	return p
}

func threadDomain(e *env) {
	d := e.rc(func(a, b *setup) { a.pd, b.pd = e.sides[0].parent(), e.sides[1].parent() })
	d.stream(50, 700)
	for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpRead} {
		d.move(op, 5000)
	}
	d = e.rc(func(a, b *setup) { a.pd, b.pd = e.sides[0].parent(), e.sides[1].parent() })
	d.denied(d.badWrite(1), "wrong key")
}

func threadDomainDatagrams(e *env) {
	d, ah := e.datagrams(func(a, b *setup) { a.pd, b.pd = e.sides[0].parent(), e.sides[1].parent() })
	for range 20 {
		d.passes(datagram(1, d.b, ah, d.am.sge(0, 20)), 100)
	}
}

// threadDomainQueue: a completion queue may be made in a parent domain, which then
// stays; a protection domain is none.
func threadDomainQueue(e *env) {
	s := e.sides[0]
	p := s.parent()
	q, err := s.CreateCQ(verbs.CQConfig{Depth: 64, Domain: p})
	e.unlessSupported(err, "a completion queue of a parent domain")
	e.busy(p.Close(), "parent domain")
	require.NoError(e, q.Close())
	_, err = s.CreateCQ(verbs.CQConfig{Depth: 64, Domain: s.pd})
	e.refused(err, "a protection domain")
	d := e.rc(func(a, _ *setup) {
		a.pd = p
		a.sendCQ, a.recvCQ = s.cqOf(verbs.CQConfig{Depth: 64, Domain: p}), s.cqOf(verbs.CQConfig{Depth: 64, Domain: p})
	})
	d.stream(50, 700)
	d.move(verbs.OpRead, 5000)
}

// threadParentShares: memory of a domain serves queue pairs of its parent domains,
// and the other way round.
func threadParentShares(e *env) {
	p := e.sides[0].parent()
	d := e.rc(nil) // in the domain itself
	m := e.sides[0].memOf(p, make([]byte, 64), verbs.MRConfig{Access: everything})
	m.fill(8, 3)
	d.a.send(at(request(1, verbs.OpWrite, m.sge(0, 8)), d.bm, 0))
	d.a.sent(1)
	require.Equal(e, pattern(8, 3), d.bm.buf[:8])
}

// together runs f on count goroutines and, meanwhile, drives the devices until all are
// done.
func (e *env) together(count int, f func(i int)) {
	e.Helper()
	var left atomic.Int64
	left.Store(int64(count))
	for i := range count {
		go func() {
			defer left.Add(-1)
			f(i)
		}()
	}
	e.until("all goroutines", func() bool { return left.Load() == 0 })
}

// threadPosts: many goroutines post to one queue pair; everything arrives once.
func threadPosts(e *env) {
	const writers, each = 4, 200
	d := e.rc(func(a, b *setup) {
		a.sendCQ, b.recvCQ = e.sides[0].cq(4096), e.sides[1].cq(4096)
		a.caps.MaxSend, b.caps.MaxRecv = writers*each, writers*each
	})
	for range writers * each {
		d.b.receive(1, d.bm.sge(0, 64))
	}
	var refused atomic.Int64
	e.together(writers, func(i int) {
		for n := range each {
			w := request(uint64(i), verbs.OpSendImm, d.am.sge(0, 8))
			w.Imm = uint32(i<<16 | n)
			if _, st := d.a.PostSend([]verbs.SendWR{w}); st != ucs.OK {
				refused.Add(1)
			}
		}
	})
	require.Zero(e, refused.Load())
	var next [writers]uint32
	for range writers * each {
		w := d.b.received(1)
		i := w.Imm >> 16
		require.Equal(e, next[i], w.Imm&0xffff, "goroutine %d", i)
		next[i]++
	}
	for range writers * each {
		require.Equal(e, verbs.WCSuccess.String(), d.a.next(d.a.sendCQ).Status.String())
	}
}

// threadPolls: many goroutines poll one queue; each completion goes to one.
func threadPolls(e *env) {
	const pollers, count = 4, 1000
	d := e.rc(func(a, _ *setup) { a.sendCQ, a.caps.MaxSend = e.sides[0].cq(4096), count })
	d.a.sendCQ.paused = true
	var mu sync.Mutex
	seen := map[uint64]int{}
	var got atomic.Int64
	for i := range uint64(count) {
		d.a.send(d.write(i))
	}
	e.together(pollers, func(int) {
		wcs := make([]verbs.WC, 3)
		for got.Load() < count {
			n := d.a.sendCQ.Poll(wcs)
			if n == 0 {
				cpu.Yield()
				continue
			}
			mu.Lock()
			for _, w := range wcs[:n] {
				seen[w.ID]++
			}
			mu.Unlock()
			got.Add(int64(n))
		}
	})
	require.Len(e, seen, count)
	require.EqualValues(e, count, got.Load())
	d.a.sendCQ.paused = false
}

// patientTimeout is the code of a second: a loaded machine may let none of those
// who drive a device run for longer than all retries of a shorter one.
const patientTimeout = 18

// threadPairs: goroutines with a pair each, on the same devices.
func threadPairs(e *env) {
	const pairs, each = 4, 300
	var duos []*duo
	for range pairs {
		d := e.rc(func(a, _ *setup) { a.timeout = patientTimeout })
		d.a.sendCQ.paused = true // the goroutine polls it
		duos = append(duos, d)
	}
	faults := make(chan string, pairs)
	e.together(pairs, func(i int) {
		d := duos[i]
		wcs := make([]verbs.WC, 1)
		for n := range each {
			w := at(request(uint64(n), verbs.OpWrite, d.am.sge(0, 2000)), d.bm, 0)
			if _, st := d.a.PostSend([]verbs.SendWR{w}); st != ucs.OK {
				faults <- fmt.Sprintf("pair %d: post %d: %v", i, n, st)
				return
			}
			for d.a.sendCQ.Poll(wcs) == 0 {
				cpu.Yield()
			}
			if wcs[0].ID != uint64(n) || wcs[0].Status != verbs.WCSuccess {
				faults <- fmt.Sprintf("pair %d: request %d of %d ended with %v", i, wcs[0].ID, n, wcs[0].Status)
				return
			}
		}
	})
	for len(faults) > 0 {
		e.Errorf("%s", <-faults)
	}
}

// threadClose: a queue pair is closed while its peer and its owner use it. Nothing
// of it touches memory afterwards.
func threadClose(e *env) {
	for range 10 {
		d := e.rc(func(a, b *setup) {
			e.brisk(1)(a, b)
			depth := min(1<<16, e.sides[0].Attr().MaxCQE)
			a.sendCQ, b.sendCQ = e.sides[0].cq(depth), e.sides[1].cq(depth)
		})
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for _, q := range []*qp{d.a, d.b} {
			mine, theirs := d.am, d.bm
			if q == d.b {
				mine, theirs = d.bm, d.am
			}
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						q.PostSend([]verbs.SendWR{at(request(1, verbs.OpWrite, mine.sge(0, 4000)), theirs, 5000)})
						cpu.Yield()
					}
				}
			})
		}
		e.pass(quiet / 4)
		require.NoError(e, d.b.Close())
		require.NoError(e, d.bm.Close())
		want := append([]byte{}, d.bm.buf...)
		e.pass(quiet / 4)
		require.Equal(e, want, d.bm.buf, "memory after its end")
		close(stop)
		wg.Wait()
		require.NoError(e, d.a.Close())
	}
}

// threadDeregister: memory that peers write to is given back; what comes later
// fails, and nothing touches it.
func threadDeregister(e *env) {
	for range 10 {
		d := e.rc(nil)
		buf := make([]byte, 100000)
		m, err := e.sides[1].pd.Register(buf, verbs.MRConfig{Access: everything})
		require.NoError(e, err)
		target := &mem{MR: m, buf: buf}
		d.am.fill(100000, 1)
		for i := range uint64(8) {
			d.a.send(at(request(i, verbs.OpWrite, d.am.sge(0, 100000)), target, 0))
		}
		e.pass(quiet / 10)
		require.NoError(e, m.Close())
		clear(buf)
		for d.a.next(d.a.sendCQ).ID != 7 { // it ended, well or not
		}
		require.Equal(e, make([]byte, len(buf)), buf, "memory after its end")
	}
}
