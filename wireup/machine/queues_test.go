package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// fabric is two hosts, a network of datagrams that loses, repeats and reorders,
// and the queue pairs of their connections. What no transport may do with a queue
// pair is a fault.
type fabric struct {
	sched
	twoStep  bool
	lossless bool
	linger   time.Duration // how long a queue pair is kept after it was retired
	hosts    [2]*host
	all      []*link
	qps      int // there now
	stale    int // links that were made for nothing, with something to send
	quiet    bool
	faults   []string
	posts    int
}

// qp is one side's queue pair of a pair. It can send and receive once it is connected to the far one; what it sent is repeated until it is acknowledged.
type qp struct {
	link  *link
	id    PairID
	far   *qp
	ended bool
	last  ucs.Time // what it sent last arrives then
	inbox []item   // arrived and not read
}

// datagram is a message of a machine and what a transport adds.
type datagram struct {
	msg   Msg
	half  *qp
	to    [16]byte // OPEN: for that worker alone
	alone bool     // OPEN: crosses with none
}

// host is a worker, or after its death the next one in its place.
type host struct {
	f     *fabric
	me    int
	id    [16]byte
	peer  [16]byte // whom its program talks to
	dead  bool
	links []*link // that are not over
}

const lifetime = 2 * time.Millisecond // of a packet in a queue pair, repetitions included

func newFabric(t testing.TB, seed uint64) *fabric {
	f := &fabric{sched: newSched(t, seed, 13), twoStep: true, linger: 2 * lifetime}
	ids := f.rnd.Perm(2)
	for i := range f.hosts {
		f.hosts[i] = &host{f: f, me: i, id: [16]byte{byte(ids[i])}}
	}
	f.hosts[0].peer, f.hosts[1].peer = f.hosts[1].id, f.hosts[0].id
	return f
}

func (f *fabric) fault(l *link, what string, args ...any) {
	s := fmt.Sprintf("%d/%x ", l.host.me, l.m.Conn()&0xffff) + fmt.Sprintf(what, args...)
	f.note("FAULT %s", s)
	f.faults = append(f.faults, s)
}

// restart has another worker in a host's place.
func (f *fabric) restart(i int) {
	old := f.hosts[i]
	old.dead = true
	h := &host{f: f, me: i, id: [16]byte{byte(f.rnd.IntN(250)), byte(1 + f.rnd.IntN(250))}, peer: f.hosts[1-i].id}
	f.hosts[i] = h
	f.note("%d: another worker %x", i, h.id[:2])
}

// open begins a connection with a worker.
func (h *host) open() *link {
	l := h.newLink(h.peer)
	h.connect(l)
	return l
}

// connect sends the OPEN of an unused link.
func (h *host) connect(l *link) {
	for _, o := range h.links {
		l.alone = l.alone || o != l && o.peer == l.peer && o.m.State() != StateIdle && !o.m.Confirmed()
	}
	l.step(Event{Kind: EventConnect})
}

func (h *host) newLink(peer [16]byte) *link {
	c := Config{
		Worker: h.id, Conn: h.f.rnd.Uint64() | 1, ThreeWay: h.f.twoStep,
		Timeout: time.Millisecond, Limit: 40 * time.Millisecond,
	}
	l := &link{host: h, m: New(c), peer: peer, pairs: map[PairID]*qp{}}
	h.links = append(h.links, l)
	h.f.all = append(h.f.all, l)
	return l
}

// use is the link that the program sends by: any that serves.
func (h *host) use() *link {
	for _, i := range h.f.rnd.Perm(len(h.links)) {
		if l := h.links[i]; l.peer == h.peer && !l.m.Closing() {
			if l.m.State() == StateIdle {
				h.connect(l)
			}
			return l
		}
	}
	return h.open()
}

// takes finds the connection that an OPEN belongs to, or begins it.
func (h *host) takes(d datagram) *link {
	for _, l := range h.links {
		if l.peer == d.msg.Worker && l.m.Remote() == d.msg.From {
			return l
		}
	}
	for _, l := range h.links {
		if l.peer == d.msg.Worker && l.m.State() == StateOpening && !l.alone && !d.alone {
			return l
		}
	}
	for _, l := range h.links {
		if l.peer == d.msg.Worker && l.m.State() == StateIdle && !d.alone {
			return l
		}
	}
	return h.newLink(d.msg.Worker)
}

// hear receives a datagram.
func (h *host) receive(d datagram) {
	if h.dead || d.msg.Kind == MsgOpen && d.to != h.id {
		return
	}
	h.f.note("%d/%x: hears %v of %x: %v", h.me, d.msg.To&0xffff, d.msg.Kind, d.msg.From&0xffff, d.msg.Pair.Flip())
	var l *link
	if d.msg.Kind == MsgOpen {
		l = h.takes(d)
	}
	for _, o := range h.links {
		if o.m.Conn() == d.msg.To {
			l = o
		}
	}
	if l != nil {
		l.receive(d)
		return
	}
	if a, ok := ResetFor(h.id, d.msg); ok {
		h.post(datagram{msg: a})
	}
}

// post sends a datagram to the worker in the other place: it is lost with 1/4,
// else comes once or more often.
func (h *host) post(d datagram) {
	f := h.f
	f.posts++
	if f.lossless {
		f.after(time.Microsecond, func() { f.hosts[1-h.me].receive(d) })
		return
	}
	for late := time.Duration(1); f.rnd.IntN(4) != 0; late = 1 + time.Duration(f.rnd.IntN(8))/7*30 {
		f.after(late*f.delay(), func() { f.hosts[1-h.me].receive(d) })
		if f.rnd.IntN(3) != 0 {
			return
		}
	}
}

// put sends in a queue pair: in order, and again where an ack is lost.
func (q *qp) put(it item) {
	f, far := q.link.host.f, q.far
	if far == nil {
		f.fault(q.link, "sends in %v, which knows no other half", q.id)
		return
	}
	if far.far != q && !far.gone() {
		f.fault(q.link, "sends in %v, whose other half is not ready", q.id)
		return
	}
	q.last = max(f.now.Add(f.delay()), q.last+1)
	f.atTime(q.last, func() { q.arrive(func() { far.take(it) }) })
	if f.rnd.IntN(3) == 0 {
		f.atTime(q.last.Add(time.Duration(f.rnd.Int64N(int64(lifetime)))), func() { q.arrive(func() {}) })
	}
}

// gone reports whether the queue pair is lost with its worker or its connection.
func (q *qp) gone() bool { return q.link.host.dead || q.link.failed != 0 }

// arrive receives a packet of q at the far queue pair.
func (q *qp) arrive(then func()) {
	f := q.link.host.f
	switch {
	case q.gone():
	case q.ended:
		f.fault(q.link, "%v is given back with requests that have no ack", q.id)
	case q.far.gone():
		f.after(lifetime, func() { q.link.step(Event{Kind: EventPeerLost}) })
	case q.far.ended:
		f.fault(q.far.link, "%v is given back, and the peer repeats", q.far.id)
	default:
		then()
	}
}

// take puts what arrived where it is read.
func (q *qp) take(it item) {
	l := q.link
	q.inbox = append(q.inbox, it)
	if l.pairs[q.id] != q {
		l.host.f.fault(l, "a message comes in %v after it was left", q.id)
		return
	}
	if l.m.TxPending() == q.id && l.host.f.rnd.IntN(3) != 0 {
		l.step(Event{Kind: EventDataReceived, Pair: q.id})
	}
	l.pump()
}

// end destroys a queue pair.
func (q *qp) end() {
	if !q.ended {
		q.ended = true
		q.link.host.f.qps--
	}
}

// check requires that nothing was done that may not be done.
func (f *fabric) check(seed uint64) {
	require.Empty(f.t, f.faults, "seed %d\n%s", seed, f.tail())
}
