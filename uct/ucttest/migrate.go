package ucttest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Cases about connections that a transport establishes, migrates and suspends below its endpoints.
var moveCases = []testCase{
	{"both-connect", moveBothConnect},
	{"all-connect", moveAllConnect},
	{"source-stays", moveConnConstant},
	{"after-idle", moveAfterIdle},
	{"awaited", moveAwaited},
}

// inbound checks the messages that one node receives. The message ID numbers the sender. The
// messages of a sender arrive in order and from one source, which no other sender uses.
type inbound struct {
	n       *node
	got     []sequence
	rxConns []uint32
}

func newInbound(n *node, senders int) *inbound {
	in := &inbound{n, make([]sequence, senders), make([]uint32, senders)}
	n.onMessage = in.take
	return in
}

func (in *inbound) take(m message) {
	if in.rxConns[m.id] == 0 {
		in.rxConns[m.id] = m.rxConn
	}
	if in.rxConns[m.id] != m.rxConn {
		in.n.complain("sender %d has sources %d and %d", m.id, in.rxConns[m.id], m.rxConn)
	}
	in.got[m.id].take(in.n, m)
}

// whole reports whether all messages up to total arrived from every sender but except.
func (in *inbound) whole(total uint64, except int) bool {
	for i := range in.got {
		if i != except && in.got[i].next < total {
			return false
		}
	}
	return true
}

// mesh is a set of nodes, each of which sends to each other.
type mesh struct {
	e     *env
	nodes []*node
	ins   []*inbound
	ss    [][]*sender // by sender and receiver
}

// newMesh opens all endpoints before any progress, so that all sides connect at once, and posts
// the first messages.
func newMesh(e *env, n int) *mesh {
	a, b := e.two()
	e.needs(a, uct.OpAMShort, "AM short")
	m := &mesh{e: e, nodes: []*node{a, b}}
	for len(m.nodes) < n {
		m.nodes = append(m.nodes, e.node())
	}
	for i, to := range m.nodes {
		m.ins = append(m.ins, newInbound(to, n))
		m.ss = append(m.ss, make([]*sender, n))
		for j := range m.nodes {
			if i != j {
				m.ss[i][j] = newSender(e.connect(m.nodes[i], m.nodes[j]), uint64(i*n+j))
			}
		}
	}
	return m
}

// run sends until each node has sent total messages to each other, and all have arrived.
func (m *mesh) run(total uint64) {
	m.e.Helper()
	m.e.until("all messages of the mesh", func() bool {
		done := true
		for i := range m.nodes {
			for j, s := range m.ss[i] {
				if s == nil {
					continue
				}
				for k := 0; k < 20 && s.number < total; k++ {
					st := s.send(uct.AMID(i))
					if st == noResource {
						break
					}
					if st != ok && st != inProgress {
						m.e.Fatalf("%d to %d: %v: %v", i, j, st, m.nodes[i].failures)
					}
				}
				done = done && s.number == total && m.ins[j].whole(total, j)
			}
		}
		return done || m.e.Failed()
	}, m.nodes...)
}

// moveBothConnect: two ifaces open endpoints to each other at once, many times, with progress at
// different moments.
func moveBothConnect(e *env) {
	for round := range 20 {
		m := newMesh(e, 2)
		for range round {
			progress(m.nodes[round%2])
		}
		m.run(100)
		for _, n := range m.nodes {
			require.Empty(e, n.failures)
		}
	}
}

// moveAllConnect: the same with several ifaces.
func moveAllConnect(e *env) {
	m := newMesh(e, 6)
	m.run(500)
	e.settle(m.nodes...)
}

// moveConnConstant: a source is constant for the lifetime of its connection, whatever the transport
// does under load.
func moveConnConstant(e *env) {
	m := newMesh(e, 2)
	for _, s := range []*sender{m.ss[0][1], m.ss[1][0]} {
		s.max = 4096
	}
	m.run(uint64(e.messages() / 10))
	e.settle(m.nodes...)
}

// moveAfterIdle: endpoints that were unused for a while work as before, in either direction,
// without a failure.
func moveAfterIdle(e *env) {
	m := newMesh(e, 4)
	for round := range uint64(3) {
		m.run(10 * (round + 1))
		until := ucs.Now().Add(100 * time.Millisecond)
		e.until("time to pass", func() bool { return ucs.Now() > until }, m.nodes...)
		for _, n := range m.nodes {
			require.Empty(e, n.failures)
		}
	}
}

// moveAwaited: a connection on which a reply is awaited is not suspended from this side. It may be
// identified by its endpoint or by its source. A connection whose end alone is awaited is
// suspended like others, and works again.
func moveAwaited(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMShort, "AM short")
	if _, can := a.iface.(uct.ConnectionCache); !can {
		e.notApplicable("connections do not sleep")
	}
	l := e.connect(a, b)
	for _, by := range []struct {
		n *node
		r waitReport
	}{{a, waitReport{ep: l.Endpoint}}, {b, waitReport{}}} {
		n, f := by.n, by.n.iface.(uct.ConnectionCache)
		l.post(func() uct.Status { return l.AMUint64(1, 1, 1) })
		if m := l.receive(); n == b {
			by.r.rxConn = m.rxConn
		}
		e.until("the connection to be idle", func() bool { return len(f.Candidates(ucs.Now(), nil)) == 1 }, a, b)
		by.r.waits = uct.WaitForReply
		n.waits = &by.r
		require.Empty(e, f.Candidates(ucs.Now(), nil), "a reply is awaited")
		require.Zero(e, f.Evict(ucs.Now(), ucs.Now(), 1))
		by.r.waits = uct.WaitForClose
		e.until("the connection to sleep", func() bool {
			f.Evict(ucs.Now(), ucs.Now(), 1)
			return a.iface.(uct.ConnectionCache).Active()+b.iface.(uct.ConnectionCache).Active() == 0
		}, a, b)
		n.waits = nil
	}
	l.post(func() uct.Status { return l.AMUint64(1, 1, 1) })
	e.until("a message after the sleep", func() bool { return len(b.inbox) == 1 }, a, b)
	require.Empty(e, append(a.failures, b.failures...))
}
