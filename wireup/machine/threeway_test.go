package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// party is one side of a connection over queue pairs, which a test steps by hand.
type party struct {
	t   *testing.T
	m   Machine
	did []Action
}

func newParty(t *testing.T, id byte) *party {
	return &party{t: t, m: New(Config{
		Worker: [16]byte{id}, Conn: uint64(id), ThreeWay: true, Timeout: time.Millisecond, Limit: 4 * time.Millisecond,
	})}
}

// step makes one step. It returns the messages sent, and stores the other actions in did.
func (p *party) step(ev Event) []Msg {
	return p.at(0, ev)
}

func (p *party) at(now ucs.Time, ev Event) (sent []Msg) {
	p.did = nil
	for _, a := range p.m.Step(now, ev, nil) {
		if a.Kind == ActionSend {
			sent = append(sent, a.Msg)
			continue
		}
		p.did = append(p.did, a)
	}
	return sent
}

// hear receives one message, with the QP endpoint info that it carries.
func (p *party) receive(m Msg) []Msg { return p.step(Event{Kind: EventReceive, Msg: m}) }

// one requires that one message was sent, of that kind, and returns it.
func (p *party) one(k MsgKind, sent []Msg) Msg {
	p.t.Helper()
	require.Len(p.t, sent, 1)
	require.Equal(p.t, k, sent[0].Kind, "%v", sent[0].Kind)
	return sent[0]
}

func (p *party) does(as ...Action) {
	p.t.Helper()
	require.Equal(p.t, as, p.did)
}

var (
	local1, remote1 = localPair(1), localPair(1).Flip()
	connect         = Event{Kind: EventConnect}
)

// connected returns two sides of an open connection that a has initiated.
func connected(t *testing.T) (a, b *party) {
	a, b = newParty(t, 1), newParty(t, 2)
	accept := b.one(MsgAccept, b.receive(a.one(MsgOpen, a.step(connect))))
	require.Empty(t, a.receive(b.one(MsgReady, b.receive(a.one(MsgReady, a.receive(accept))))))
	return a, b
}

// TestTwoMessagesBeforeTheFirst: the initiator sends after two messages, the target after three, or
// when data arrives.
func TestTwoMessagesBeforeTheFirst(t *testing.T) {
	for _, first := range []Event{
		{Kind: EventReceive, Msg: Msg{Kind: MsgReady, Worker: [16]byte{1}, From: 1, To: 2, Pair: local1}},
		{Kind: EventDataReceived, Pair: remote1},
	} {
		a, b := newParty(t, 1), newParty(t, 2)
		opening := a.one(MsgOpen, a.step(connect))
		a.does(Action{Kind: ActionCreate, Pair: local1})
		require.True(t, b.m.AcceptsPair(opening) && opening.CarriesQPInfo())
		accept := b.one(MsgAccept, b.receive(opening))
		b.does(Action{Kind: ActionSwitchRx, Pair: remote1})
		require.Equal(t, remote1, b.m.TxPending())
		require.False(t, b.m.Confirmed() || b.m.CanMigrate() || b.m.Quiescent())
		require.False(t, b.m.AcceptsPair(opening), "again")
		ready := a.one(MsgReady, a.receive(accept))
		a.does(Action{Kind: ActionConnect, Pair: local1}, Action{Kind: ActionSwitchRx, Pair: local1}, Action{Kind: ActionSwitchTx, Pair: local1})
		require.Equal(t, local1, ready.Pair)
		require.Empty(t, b.step(Event{Kind: EventDataReceived, Pair: remote1 + 2}), "not that")
		require.Empty(t, b.did)
		require.True(t, b.m.HalfOpen())
		answer := b.step(first)
		b.does(Action{Kind: ActionSwitchTx, Pair: remote1})
		require.False(t, b.m.HalfOpen())
		require.True(t, a.m.Quiescent() && b.m.Quiescent() && a.m.Confirmed() && b.m.Confirmed())
		require.Zero(t, b.m.Deadline())
		if first.Kind == EventDataReceived {
			require.Empty(t, answer)
			answer = b.receive(ready)
			require.Empty(t, b.did)
		}
		require.NotZero(t, a.m.Deadline())
		require.Empty(t, a.receive(b.one(MsgReady, answer)))
		require.Empty(t, a.did)
		require.Zero(t, a.m.Deadline(), "it has nothing to retransmit")
	}
}

// TestLostMessagesAreRetransmitted: each of the four messages of the handshake is lost once. A side
// that receives one twice only repeats its reply.
func TestLostMessagesAreRetransmitted(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	first := a.one(MsgOpen, a.step(connect))
	opening := a.one(MsgOpen, a.at(a.m.Deadline(), Event{Kind: EventTick}))
	require.Equal(t, first, opening)
	b.receive(opening) // ACCEPT is lost
	b.one(MsgAccept, b.receive(first))
	require.Empty(t, b.did)
	accept := b.one(MsgAccept, b.at(b.m.Deadline(), Event{Kind: EventTick}))
	a.receive(accept) // READY is lost
	again := b.one(MsgAccept, b.at(b.m.Deadline(), Event{Kind: EventTick}))
	ready := a.one(MsgReady, a.receive(again))
	require.Empty(t, a.did)
	require.Equal(t, ready, a.one(MsgReady, a.at(a.m.Deadline(), Event{Kind: EventTick})))
	b.receive(ready) // the reply is lost
	b.does(Action{Kind: ActionSwitchTx, Pair: remote1})
	require.Empty(t, b.receive(first), "no OPEN has a reply any more")
	ready = a.one(MsgReady, a.at(a.m.Deadline(), Event{Kind: EventTick}))
	a.receive(b.one(MsgReady, b.receive(ready)))
	require.Empty(t, b.did)
	require.Empty(t, append(a.did, b.did...))
	require.Zero(t, a.m.Deadline()+b.m.Deadline())
}

// TestForgedOpen: a peer that does not reply gets three ACCEPTs for an OPEN, one more for each
// further OPEN, and no RESET.
func TestForgedOpen(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	b.m.conf.Limit = 50 * time.Millisecond
	opening := a.one(MsgOpen, a.step(connect))
	n := len(b.receive(opening))
	for i := 0; b.m.State() != StateFailed; i++ {
		if i == 20 {
			n += len(b.receive(opening))
		}
		n += len(b.at(b.m.Deadline(), Event{Kind: EventTick}))
		require.LessOrEqual(t, i, 50)
	}
	require.Equal(t, acceptTries+1, n)
	b.does(Action{Kind: ActionFail, Reason: ReasonPeerLost})
}

// TestUnacknowledgedReady: the initiator keeps the connection although READY has no reply.
func TestUnacknowledgedReady(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	a.one(MsgReady, a.receive(b.one(MsgAccept, b.receive(a.one(MsgOpen, a.step(connect))))))
	for range 3 {
		a.one(MsgReady, a.at(a.m.Deadline(), Event{Kind: EventTick}))
	}
	require.Empty(t, a.at(a.m.Deadline(), Event{Kind: EventTick}))
	require.Empty(t, a.did)
	require.Equal(t, StateOpen, a.m.State())
	require.Zero(t, a.m.Deadline())
	a.one(MsgSuspend, a.step(Event{Kind: EventSuspend}))
	for range 3 {
		a.one(MsgSuspend, a.at(a.m.Deadline(), Event{Kind: EventTick}))
	}
	a.at(a.m.Deadline(), Event{Kind: EventTick})
	a.does(Action{Kind: ActionFail, Reason: ReasonPeerLost})
}

// TestCrossingIsNotBound: the losing OPEN may be of a connection that is over when the winning OPEN
// arrives. Another connection replies to it then.
func TestCrossingIsNotBound(t *testing.T) {
	a, gone, b := newParty(t, 1), newParty(t, 2), newParty(t, 3)
	opening := a.one(MsgOpen, a.step(connect))
	require.Empty(t, a.receive(gone.one(MsgOpen, gone.step(connect))))
	a.one(MsgReady, a.receive(b.one(MsgAccept, b.receive(opening))))
	require.Equal(t, StateOpen, a.m.State())
	require.EqualValues(t, 3, a.m.Remote())
}

// TestSilentHandshakeFails on both sides.
func TestSilentHandshakeFails(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	b.receive(a.one(MsgOpen, a.step(connect)))
	for _, p := range []*party{a, b} {
		n := 0
		for p.m.State() != StateFailed {
			p.at(p.m.Deadline(), Event{Kind: EventTick})
			n++
			require.LessOrEqual(t, n, 4)
		}
		p.does(Action{Kind: ActionFail, Reason: ReasonPeerLost})
		require.Zero(t, p.m.Deadline())
	}
}

// TestCrossingOpens: the OPEN of the smaller worker UUID wins in either order of arrival. The other's
// queue pair is retired at once.
func TestCrossingOpens(t *testing.T) {
	for _, late := range []bool{false, true} {
		a, b := newParty(t, 1), newParty(t, 2)
		openA, openB := a.one(MsgOpen, a.step(connect)), b.one(MsgOpen, b.step(connect))
		require.False(t, a.m.AcceptsPair(openB))
		require.True(t, b.m.AcceptsPair(openA))
		if !late {
			require.Empty(t, a.receive(openB))
			require.Empty(t, a.did)
		}
		accept := b.one(MsgAccept, b.receive(openA))
		b.does(Action{Kind: ActionSwitchRx, Pair: remote1}, Action{Kind: ActionRetire, Pair: local1})
		ready := a.one(MsgReady, a.receive(accept))
		if late {
			require.False(t, a.m.AcceptsPair(openB))
			require.Empty(t, a.receive(openB))
			require.Empty(t, a.did)
		}
		b.receive(ready)
		require.True(t, a.m.Quiescent() && b.m.Quiescent())
		require.True(t, a.m.TxPair().IsLocal())
	}
}

// TestOpenRejected by a side that has no queue pair for it, opening or not.
func TestOpenRejected(t *testing.T) {
	for _, opening := range []bool{false, true} {
		a, b := newParty(t, 1), newParty(t, 2)
		if opening {
			b.step(connect)
		}
		opening := a.one(MsgOpen, a.step(connect))
		reject := b.one(MsgReject, b.step(Event{Kind: EventAttachFailed, Msg: opening}))
		b.does(Action{Kind: ActionFail, Reason: ReasonRejected})
		require.Empty(t, a.receive(reject))
		a.does(Action{Kind: ActionFail, Reason: ReasonRejected})
	}
}

// TestClosedWhileItConnects: CLOSE follows when the other side is ready to read the end marker.
func TestClosedWhileItConnects(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	opening := a.one(MsgOpen, a.step(connect))
	require.Empty(t, a.step(Event{Kind: EventClose}))
	accept := b.one(MsgAccept, b.receive(opening))
	require.Empty(t, b.step(Event{Kind: EventClose}))
	sent := a.receive(accept)
	require.Len(t, sent, 2)
	a.does(
		Action{Kind: ActionConnect, Pair: local1}, Action{Kind: ActionSwitchRx, Pair: local1},
		Action{Kind: ActionSwitchTx, Pair: local1}, Action{Kind: ActionSwitchTx, Pair: End},
	)
	answers := b.receive(sent[0])
	closing := b.one(MsgClose, answers[:1])
	b.one(MsgReady, answers[1:])
	b.does(Action{Kind: ActionSwitchTx, Pair: remote1}, Action{Kind: ActionSwitchTx, Pair: End})
	ackA, ackB := b.one(MsgCloseAck, b.receive(sent[1])), a.one(MsgCloseAck, a.receive(closing))
	for _, p := range []*party{a, b} {
		p.step(Event{Kind: EventMarker, Pair: End})
		require.Equal(t, StateOpen, p.m.State(), "its end has no ack")
	}
	a.receive(ackA)
	a.does(Action{Kind: ActionClose})
	b.receive(ackB)
	b.does(Action{Kind: ActionClose})
	require.Empty(t, b.receive(opening), "late")
}

// TestResets: a side without the connection replies RESET. Its meaning depends on the state of the
// receiver.
func TestResets(t *testing.T) {
	gone := func(p *party, m Msg) Msg {
		a, ok := ResetFor([16]byte{9}, m)
		require.True(t, ok)
		require.Equal(t, Msg{Kind: MsgReset, Worker: [16]byte{9}, From: m.To, To: p.m.Conn()}, a)
		_, ok = ResetFor([16]byte{9}, a)
		require.False(t, ok, "RESET has no reply")
		return a
	}
	t.Run("OPEN of a closed connection", func(t *testing.T) {
		a, b := newParty(t, 1), newParty(t, 2)
		opening := a.one(MsgOpen, a.step(connect))
		_, ok := ResetFor([16]byte{9}, opening)
		require.False(t, ok)
		b.receive(gone(b, b.one(MsgAccept, b.receive(opening))))
		b.does(Action{Kind: ActionFail, Reason: ReasonStale})
	})
	t.Run("a worker that was there before", func(t *testing.T) {
		a, _ := connected(t)
		migrate := a.one(MsgMigrate, a.step(Event{Kind: EventMigrate}))
		a.receive(gone(a, migrate))
		a.does(Action{Kind: ActionFail, Reason: ReasonPeerLost})
	})
	t.Run("MIGRATE_ACK of a closed connection", func(t *testing.T) {
		a, b := connected(t)
		ack := b.one(MsgMigrateAck, b.receive(a.one(MsgMigrate, a.step(Event{Kind: EventMigrate}))))
		b.receive(gone(b, ack))
		b.does(Action{Kind: ActionFail, Reason: ReasonPeerLost})
	})
	t.Run("CLOSE of a closed connection", func(t *testing.T) {
		a, b := connected(t)
		closing := a.one(MsgClose, a.step(Event{Kind: EventClose}))
		b.receive(closing)
		b.step(Event{Kind: EventMarker, Pair: End})
		back := b.one(MsgClose, b.step(Event{Kind: EventClose}))
		b.receive(gone(b, back))
		b.does(Action{Kind: ActionClose})
	})
	t.Run("CLOSE to a failed connection", func(t *testing.T) {
		a, _ := connected(t)
		a.receive(gone(a, a.one(MsgClose, a.step(Event{Kind: EventClose}))))
		a.does(Action{Kind: ActionFail, Reason: ReasonPeerLost})
	})
	t.Run("of another connection", func(t *testing.T) {
		a, _ := connected(t)
		require.Empty(t, a.receive(Msg{Kind: MsgReset, From: 77, To: 1}))
		require.Equal(t, StateOpen, a.m.State())
	})
}

// TestFailureSendsReset: the peer would not detect it.
func TestFailureSendsReset(t *testing.T) {
	a, b := connected(t)
	b.receive(a.one(MsgReset, a.step(Event{Kind: EventPeerLost})))
	b.does(Action{Kind: ActionFail, Reason: ReasonPeerLost})
}

// TestMigratesInTwoSteps: the initiator moves on MIGRATE_ACK, the target on READY.
func TestMigratesInTwoSteps(t *testing.T) {
	a, b := connected(t)
	p2 := localPair(2)
	migrate := a.one(MsgMigrate, a.step(Event{Kind: EventMigrate}))
	require.True(t, b.m.AcceptsPair(migrate))
	ack := b.one(MsgMigrateAck, b.receive(migrate))
	require.Empty(t, b.did)
	require.False(t, b.m.CanMigrate())
	require.Equal(t, ack, b.one(MsgMigrateAck, b.receive(migrate)), "again")
	ready := a.one(MsgReady, a.receive(ack))
	a.does(Action{Kind: ActionConnect, Pair: p2}, Action{Kind: ActionSwitchTx, Pair: p2})
	a.one(MsgReady, a.receive(ack))
	require.Empty(t, a.did, "once")
	b.receive(ready)
	b.does(Action{Kind: ActionSwitchTx, Pair: p2.Flip()})
	b.step(Event{Kind: EventMarker, Pair: p2})
	b.does(Action{Kind: ActionSwitchRx, Pair: p2.Flip()}, Action{Kind: ActionRetire, Pair: remote1})
	a.step(Event{Kind: EventMarker, Pair: p2.Flip()})
	a.does(Action{Kind: ActionSwitchRx, Pair: p2}, Action{Kind: ActionRetire, Pair: local1})
}

// TestNothingLeadsIntoAnUnconnectedPair: neither a marker nor OPEN_CROSSED.
func TestNothingLeadsIntoAnUnconnectedPair(t *testing.T) {
	a, _ := connected(t)
	a.step(Event{Kind: EventMigrate})
	a.one(MsgReset, a.step(Event{Kind: EventMarker, Pair: localPair(2).Flip()}))
	a.does(Action{Kind: ActionFail, Reason: ReasonProtocolError})
	a = newParty(t, 1)
	a.step(connect)
	a.receive(Msg{Kind: MsgOpenCrossed, Worker: [16]byte{2}, From: 2, To: 1, Pair: remote1})
	a.does(Action{Kind: ActionFail, Reason: ReasonProtocolError})
}

// TestHalfSuspendedSuspends: the peer has left the pair, and a late SUSPEND_NAK hid it.
func TestHalfSuspendedSuspends(t *testing.T) {
	a, b := connected(t)
	suspend := a.one(MsgSuspend, a.step(Event{Kind: EventSuspend}))
	nak := b.one(MsgSuspendNak, b.step(Event{Kind: EventReceive, Msg: suspend, Busy: true}))
	b.one(MsgSuspendAck, b.receive(suspend)) // lost
	a.receive(nak)
	a.step(Event{Kind: EventMarker})
	a.does(Action{Kind: ActionSwitchRx})
	require.Empty(t, a.step(Event{Kind: EventSuspend}))
	a.does(Action{Kind: ActionSwitchTx}, Action{Kind: ActionRetire, Pair: local1})
	b.step(Event{Kind: EventMarker})
	b.does(Action{Kind: ActionSwitchRx}, Action{Kind: ActionRetire, Pair: remote1})
}
