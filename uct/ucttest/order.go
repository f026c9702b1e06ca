package ucttest

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/uct"
)

var orderCases = []testCase{
	{"mixed-forms", orderMixed},
	{"two-goroutines", orderTwoGoroutines},
	{"many-to-one", orderManyToOne},
	{"two-endpoints", orderTwoEndpoints},
}

// messages returns the number of messages of the long cases.
func (e *env) messages() int {
	n := cmp.Or(e.factory.Messages, 100_000)
	if long() {
		n *= 10
	}
	if testing.Short() || race.Enabled {
		n /= 20
	}
	return n
}

// sender sends numbered messages of random forms and lengths. The header is the number, the
// payload the pattern of the number.
type sender struct {
	l      *link
	random *rand.Rand
	number uint64
	buf    []byte
	max    int
	form   *form
	size   int
}

func newSender(l *link, seed uint64) *sender {
	s := &sender{l: l, random: rand.New(rand.NewPCG(seed, seed)), buf: make([]byte, 64<<10), max: 300}
	s.choose()
	return s
}

// choose selects the next message; most are small.
func (s *sender) choose() {
	forms := s.l.from.forms()
	s.form = &forms[s.random.IntN(len(forms))]
	low, high := s.form.limit(s.l.from.attr)
	high = min(high, s.max, len(s.buf))
	if s.random.IntN(64) != 0 {
		high = min(high, 32)
	}
	s.size = max(low, s.random.IntN(max(high, low)+1))
	s.size = min(s.size, max(high, low))
}

// send tries to send the next message and returns the transport's status.
func (s *sender) send(id uct.AMID) uct.Status {
	p := s.buf[:s.size]
	if s.form.op == uct.OpAMZcopy {
		p = make([]byte, s.size) // in use until its event
	}
	fill(p, s.number)
	st := s.form.send(s.l, id, s.number, p)
	if st == ok {
		clobber(p)
	}
	if st == ok || st == inProgress {
		s.number++
		s.choose()
	}
	return st
}

// sequence checks numbered messages.
type sequence struct{ next uint64 }

// check returns what is wrong with m, or "".
func (q *sequence) check(m message) string {
	switch {
	case m.header != q.next:
		return "number"
	case !holds(m.data, m.header):
		return "payload"
	}
	q.next++
	return ""
}

// take checks m as the next message of its sequence.
func (q *sequence) take(n *node, m message) {
	if fault := q.check(m); fault != "" {
		n.complain("wrong %s: message %d with %d bytes after %d of source %d", fault, m.header, len(m.data), q.next, m.rxConn)
		q.next = m.header + 1
	}
}

// orderMixed sends a long stream on one goroutine.
func orderMixed(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMShort, "AM short")
	s := newSender(e.connect(a, b), 1)
	var got sequence
	b.onMessage = func(m message) { got.take(b, m) }
	for n := uint64(e.messages()); s.number < n && !e.Failed(); {
		if st := s.send(1); st == noResource {
			progress(a, b)
		} else {
			require.Contains(e, []uct.Status{ok, inProgress}, st)
		}
	}
	e.until("all messages", func() bool { return got.next == s.number || e.Failed() }, a, b)
	e.settle(a, b)
}

// orderTwoGoroutines runs sender and receiver concurrently.
func orderTwoGoroutines(e *env) {
	a, b := e.two()
	e.needs(a, uct.OpAMShort, "AM short")
	s, total := newSender(e.connect(a, b), 2), uint64(e.messages())
	var got sequence
	b.onMessage = func(m message) { got.take(b, m) }
	var wg sync.WaitGroup
	wg.Go(func() {
		if !drive(func() bool { return got.next >= total || e.Failed() }, b) {
			e.Errorf("%d of %d messages arrived", got.next, total)
		}
	})
	for was := s.number; !drive(func() bool { return s.sendRun(total) || e.Failed() }, a); was = s.number {
		if s.number == was { // a sender receives nothing
			e.Errorf("%d of %d messages sent", s.number, total)
			break
		}
	}
	wg.Wait()
}

// sendRun sends until total is reached or resources are exhausted; it returns true when done.
func (s *sender) sendRun(total uint64) bool {
	for s.number < total {
		switch st := s.send(1); st {
		case ok, inProgress:
		case noResource:
			return false
		default:
			s.l.env.Errorf("send: %v", st)
			return true
		}
	}
	return true
}

// orderManyToOne sends from several ifaces to one.
func orderManyToOne(e *env) {
	const senders = 4
	a, b := e.two()
	e.needs(a, uct.OpAMShort, "AM short")
	in := newInbound(b, senders)
	ss, nodes := make([]*sender, senders), []*node{b}
	for i := range ss {
		n := a
		if i > 0 {
			n = e.node()
		}
		ss[i] = newSender(e.connect(n, b), uint64(i))
		nodes = append(nodes, n)
	}
	e.takeTurns(ss, in.got, nodes)
}

// orderTwoEndpoints: each endpoint of one iface keeps its order.
func orderTwoEndpoints(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMShort, "AM short")
	got := make([]sequence, 2)
	b.onMessage = func(m message) { got[m.id].take(b, m) }
	e.takeTurns([]*sender{newSender(e.connect(a, b), 1), newSender(e.connect(a, b), 2)}, got, []*node{a, b})
}

// takeTurns lets senders send in random order; sender i uses ID i.
func (e *env) takeTurns(ss []*sender, got []sequence, nodes []*node) {
	e.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	each := uint64(e.messages() / 4)
	e.until("all messages", func() bool {
		done := true
		for i := range ss {
			for range random.IntN(20) {
				if ss[i].number == each || ss[i].send(uct.AMID(i)) == noResource {
					break
				}
			}
			done = done && got[i].next == each
		}
		return done || e.Failed()
	}, nodes...)
	e.settle(nodes...)
}
