package machine

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// link is one side of a connection as a transport drives it, and its program.
type link struct {
	host    *host
	m       Machine
	peer    [16]byte
	alone   bool
	pairs   map[PairID]*qp
	half    *qp // that came with the received message
	out, in PairID
	wants   int // messages still to be sent
	sent    int
	got     int
	failed  Reason
	ended   bool
	ticking ucs.Time
}

func (l *link) over() bool { return l.host.dead || l.failed != 0 || l.ended }

// hear receives a message with the QP endpoint info that it carries.
func (l *link) receive(d datagram) {
	f := l.host.f
	l.half = d.half
	ev := Event{Kind: EventReceive, Msg: d.msg, Busy: f.rnd.IntN(4) == 0 && !f.quiet}
	var brought PairID
	switch p := d.msg.Pair.Flip(); {
	case !l.m.AcceptsPair(d.msg) && f.twoStep, !f.twoStep && (!d.msg.CarriesPair() || l.pairs[p] != nil || d.half == nil):
	case d.msg.Kind == MsgMigrate && f.rnd.IntN(20) == 0:
		ev.Kind = EventAttachFailed
	default:
		brought = p
		l.hold(&qp{link: l, id: p, far: d.half})
	}
	l.step(ev)
	if brought != None && !l.over() && f.twoStep {
		require.True(f.t, l.m.Uses(brought), "what it wants it holds\n%s", f.tail())
	}
	if d.msg.Kind == MsgClose && !l.m.Closing() && f.rnd.IntN(2) == 0 {
		l.end()
	}
}

// hold adds a local queue pair.
func (l *link) hold(q *qp) {
	f := l.host.f
	require.Nil(f.t, l.pairs[q.id], "%v is there\n%s", q.id, f.tail())
	l.pairs[q.id] = q
	f.qps++
}

func (l *link) step(ev Event) {
	if l.over() {
		return
	}
	var buf [8]Action
	before := l.m.State()
	acts := l.m.Step(l.host.f.now, ev, buf[:0])
	walk(l.host.f.t, before, ev, l.m.State())
	for _, a := range acts {
		l.do(a)
	}
	if !l.over() && (l.m.TxPair() != l.out || l.m.RxPair() != l.in) {
		l.host.f.fault(l, "is in %v and %v, and should be in %v and %v", l.out, l.in, l.m.TxPair(), l.m.RxPair())
	}
	l.clock()
}

func (l *link) clock() {
	d := l.m.Deadline()
	if d == 0 || d == l.ticking || l.over() {
		return
	}
	l.ticking = d
	l.host.f.atTime(max(d, l.host.f.now), func() {
		if l.ticking == d {
			l.ticking = 0
			l.step(Event{Kind: EventTick})
		}
	})
}

func (l *link) do(a Action) {
	f := l.host.f
	f.note("%d/%x: act %d %v %v %v %v", l.host.me, l.m.Conn()&0xffff, a.Kind, a.Msg.Kind, a.Pair, a.Msg.Pair, a.Reason)
	switch a.Kind {
	case ActionCreate:
		l.hold(&qp{link: l, id: a.Pair})
	case ActionSend:
		l.post(a.Msg)
	case ActionConnect:
		if l.half == nil || l.half.far != l.pairs[a.Pair] {
			f.fault(l, "joins %v with a half that is not of it", a.Pair)
			return
		}
		l.pairs[a.Pair].far = l.half
	case ActionSwitchTx:
		if l.out != None {
			l.pairs[l.out].put(item{mark: a.Pair})
		}
		l.out = a.Pair
		if a.Pair == End {
			l.out = None
		}
		l.flush()
	case ActionSwitchRx:
		l.in = a.Pair
		f.after(0, l.pump)
	case ActionRetire:
		l.retire(l.pairs[a.Pair])
	case ActionClose:
		l.ended = true
		for _, q := range l.pairs {
			l.retire(q)
		}
		l.leave()
	case ActionFail:
		l.fail(a.Reason)
	}
}

// retire retains a queue pair for as long as either side may retransmit its last packets.
func (l *link) retire(q *qp) {
	f := l.host.f
	require.NotNil(f.t, q, "retires what is not there\n%s", f.tail())
	require.Empty(f.t, q.inbox, "retires %v unread\n%s", q.id, f.tail())
	delete(l.pairs, q.id)
	if q.far == nil {
		q.end()
		return
	}
	f.after(f.linger, q.end)
}

func (l *link) leave() {
	h := l.host
	h.links = slices.DeleteFunc(h.links, func(o *link) bool { return o == l })
}

func (l *link) fail(r Reason) {
	l.failed = r
	for _, q := range l.pairs {
		q.end()
	}
	l.leave()
	if r == ReasonStale && l.wants > 0 { // nothing was sent: it goes by another
		l.host.f.stale++
		o := l.host.use()
		o.wants += l.wants
		l.wants = 0
		o.urge()
	}
}

// post sends a message of the machine's.
func (l *link) post(m Msg) {
	d := datagram{msg: m, to: l.peer, alone: l.alone}
	if m.CarriesQPInfo() {
		d.half = l.pairs[m.Pair]
		if d.half == nil {
			l.host.f.fault(l, "says %v with a half of %v, which it does not have", m.Kind, m.Pair)
			return
		}
	}
	l.host.post(d)
}

// pump reads what has come in the pair that is read.
func (l *link) pump() {
	f := l.host.f
	for l.in != None && !l.over() {
		q := l.pairs[l.in]
		if q == nil {
			f.fault(l, "reads %v, which it does not have", l.in)
			return
		}
		if len(q.inbox) == 0 {
			return
		}
		it := q.inbox[0]
		q.inbox = q.inbox[1:]
		if it.data > 0 {
			require.Equal(f.t, l.got+1, it.data, "%s", f.tail())
			l.got++
			continue
		}
		in := l.in
		l.step(Event{Kind: EventMarker, Pair: it.mark})
		require.True(f.t, l.over() || in != l.in, "a marker moves the reader\n%s", f.tail())
	}
}

// flush sends what the program wants to send and may.
func (l *link) flush() {
	for l.wants > 0 && l.out != None && !l.m.Closing() && l.host.f.rnd.IntN(8) != 0 {
		l.wants--
		l.sent++
		q := l.pairs[l.out]
		if q == nil {
			l.host.f.fault(l, "sends in %v, which it does not have", l.out)
			return
		}
		q.put(item{data: l.sent})
	}
}

// urge resumes a suspended connection if there is data.
func (l *link) urge() {
	if l.wants > 0 && l.out == None {
		l.step(Event{Kind: EventResume})
	}
	l.flush()
}

// end has the program close the connection.
func (l *link) end() {
	l.wants = 0
	if l.m.State() == StateIdle && !l.over() { // the peer does not know it
		l.ended = true
		l.leave()
		return
	}
	l.step(Event{Kind: EventClose})
}

// program is what a host does at random.
func (h *host) program(steps int, closes bool) {
	f := h.f
	if steps == 0 || h.dead {
		return
	}
	var l *link
	if len(h.links) > 0 {
		l = h.links[f.rnd.IntN(len(h.links))]
	}
	switch n := f.rnd.IntN(16); {
	case n < 5:
		o := h.use()
		o.wants += f.rnd.IntN(5)
		o.urge()
	case n == 5 && len(h.links) < 4:
		o := h.open()
		o.wants++
	case n == 6 && closes && l != nil:
		l.end()
	case n < 9 && l != nil:
		l.step(Event{Kind: EventMigrate})
	case n < 13 && l != nil:
		l.step(Event{Kind: EventSuspend})
	}
	if l != nil {
		l.urge()
	}
	f.after(4*f.delay(), func() { h.program(steps-1, closes) })
}

// settle lets a host send what is left.
func (h *host) settle() {
	busy := false
	for _, l := range slices.Clone(h.links) {
		l.urge()
		busy = busy || l.wants > 0
	}
	if busy && !h.dead {
		h.f.after(100*time.Microsecond, h.settle)
	}
}
