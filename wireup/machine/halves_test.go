package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// party is one side of a connection of pairs of two halves, moved by hand.
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

// step takes an event and gives the messages said and the other actions.
func (p *party) step(ev Event) []Msg {
	return p.at(0, ev)
}

func (p *party) at(now ucs.Time, ev Event) (said []Msg) {
	p.did = nil
	for _, a := range p.m.Step(now, ev, nil) {
		if a.Kind == ActionSend {
			said = append(said, a.Msg)
			continue
		}
		p.did = append(p.did, a)
	}
	return said
}

// hear takes one message, with the half that it brings.
func (p *party) hear(m Msg) []Msg { return p.step(Event{Kind: EventReceive, Msg: m}) }

// one requires that there is one message, of that kind.
func (p *party) one(k MsgKind, said []Msg) Msg {
	p.t.Helper()
	require.Len(p.t, said, 1)
	require.Equal(p.t, k, said[0].Kind, "%v", said[0].Kind)
	return said[0]
}

func (p *party) does(as ...Action) {
	p.t.Helper()
	require.Equal(p.t, as, p.did)
}

var (
	mine, theirs = localPair(1), localPair(1).Flip()
	connect      = Event{Kind: EventConnect}
)

// connected are two sides of which a said hello, and both know that it is open.
func connected(t *testing.T) (a, b *party) {
	a, b = newParty(t, 1), newParty(t, 2)
	accept := b.one(MsgAccept, b.hear(a.one(MsgOpen, a.step(connect))))
	require.Empty(t, a.hear(b.one(MsgReady, b.hear(a.one(MsgReady, a.hear(accept))))))
	return a, b
}

// TestTwoMessagesBeforeTheFirst of the side that connects, and three before the
// other's: less where something arrives first.
func TestTwoMessagesBeforeTheFirst(t *testing.T) {
	for _, first := range []Event{
		{Kind: EventReceive, Msg: Msg{Kind: MsgReady, Worker: [16]byte{1}, From: 1, To: 2, Pair: mine}},
		{Kind: EventDataReceived, Pair: theirs},
	} {
		a, b := newParty(t, 1), newParty(t, 2)
		hello := a.one(MsgOpen, a.step(connect))
		a.does(Action{Kind: ActionCreate, Pair: mine})
		require.True(t, b.m.AcceptsPair(hello) && hello.CarriesQPInfo())
		accept := b.one(MsgAccept, b.hear(hello))
		b.does(Action{Kind: ActionSwitchRx, Pair: theirs})
		require.Equal(t, theirs, b.m.TxPending())
		require.False(t, b.m.Confirmed() || b.m.CanMigrate() || b.m.Quiescent())
		require.False(t, b.m.AcceptsPair(hello), "again")
		ready := a.one(MsgReady, a.hear(accept))
		a.does(Action{Kind: ActionConnect, Pair: mine}, Action{Kind: ActionSwitchRx, Pair: mine}, Action{Kind: ActionSwitchTx, Pair: mine})
		require.Equal(t, mine, ready.Pair)
		require.Empty(t, b.step(Event{Kind: EventDataReceived, Pair: theirs + 2}), "not that")
		require.Empty(t, b.did)
		require.True(t, b.m.HalfOpen())
		answer := b.step(first)
		b.does(Action{Kind: ActionSwitchTx, Pair: theirs})
		require.False(t, b.m.HalfOpen())
		require.True(t, a.m.Quiescent() && b.m.Quiescent() && a.m.Confirmed() && b.m.Confirmed())
		require.Zero(t, b.m.Deadline())
		if first.Kind == EventDataReceived {
			require.Empty(t, answer)
			answer = b.hear(ready)
			require.Empty(t, b.did)
		}
		require.NotZero(t, a.m.Deadline())
		require.Empty(t, a.hear(b.one(MsgReady, answer)))
		require.Empty(t, a.did)
		require.Zero(t, a.m.Deadline(), "it has nothing to retransmit")
	}
}

// TestLostMessagesAreSaidAgain: each of the four, and a side that receives one twice does
// nothing but answer.
func TestLostMessagesAreSaidAgain(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	first := a.one(MsgOpen, a.step(connect))
	hello := a.one(MsgOpen, a.at(a.m.Deadline(), Event{Kind: EventTick}))
	require.Equal(t, first, hello)
	b.hear(hello) // the accept is lost
	b.one(MsgAccept, b.hear(first))
	require.Empty(t, b.did)
	accept := b.one(MsgAccept, b.at(b.m.Deadline(), Event{Kind: EventTick}))
	a.hear(accept) // ready is lost
	again := b.one(MsgAccept, b.at(b.m.Deadline(), Event{Kind: EventTick}))
	ready := a.one(MsgReady, a.hear(again))
	require.Empty(t, a.did)
	require.Equal(t, ready, a.one(MsgReady, a.at(a.m.Deadline(), Event{Kind: EventTick})))
	b.hear(ready) // the answer is lost
	b.does(Action{Kind: ActionSwitchTx, Pair: theirs})
	require.Empty(t, b.hear(first), "no hello is answered any more")
	ready = a.one(MsgReady, a.at(a.m.Deadline(), Event{Kind: EventTick}))
	a.hear(b.one(MsgReady, b.hear(ready)))
	require.Empty(t, b.did)
	require.Empty(t, append(a.did, b.did...))
	require.Zero(t, a.m.Deadline()+b.m.Deadline())
}

// TestForgedHello: a peer that does not answer gets three accepts for a hello, one more for
// each further hello, and no word of the end.
func TestForgedHello(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	b.m.conf.Limit = 50 * time.Millisecond
	hello := a.one(MsgOpen, a.step(connect))
	n := len(b.hear(hello))
	for i := 0; b.m.State() != StateFailed; i++ {
		if i == 20 {
			n += len(b.hear(hello))
		}
		n += len(b.at(b.m.Deadline(), Event{Kind: EventTick}))
		require.LessOrEqual(t, i, 50)
	}
	require.Equal(t, acceptTries+1, n)
	b.does(Action{Kind: ActionFail, Reason: ReasonPeerLost})
}

// TestUnansweredReady: the side that connected goes on where the peer sends nothing more.
func TestUnansweredReady(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	a.one(MsgReady, a.hear(b.one(MsgAccept, b.hear(a.one(MsgOpen, a.step(connect))))))
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

// TestCrossingIsNotBound: the hello that gives way to this side's may be of a connection
// that is over when this side's comes, which is answered by another then.
func TestCrossingIsNotBound(t *testing.T) {
	a, gone, b := newParty(t, 1), newParty(t, 2), newParty(t, 3)
	hello := a.one(MsgOpen, a.step(connect))
	require.Empty(t, a.hear(gone.one(MsgOpen, gone.step(connect))))
	a.one(MsgReady, a.hear(b.one(MsgAccept, b.hear(hello))))
	require.Equal(t, StateOpen, a.m.State())
	require.EqualValues(t, 3, a.m.Remote())
}

// TestWhoIsNotHeardGivesUp on both sides of a handshake.
func TestWhoIsNotHeardGivesUp(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	b.hear(a.one(MsgOpen, a.step(connect)))
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

// TestCrossingHellos: the smaller worker's stands, in whatever order they come, and
// the other's half goes at once.
func TestCrossingHellos(t *testing.T) {
	for _, late := range []bool{false, true} {
		a, b := newParty(t, 1), newParty(t, 2)
		fromA, fromB := a.one(MsgOpen, a.step(connect)), b.one(MsgOpen, b.step(connect))
		require.False(t, a.m.AcceptsPair(fromB))
		require.True(t, b.m.AcceptsPair(fromA))
		if !late {
			require.Empty(t, a.hear(fromB))
			require.Empty(t, a.did)
		}
		accept := b.one(MsgAccept, b.hear(fromA))
		b.does(Action{Kind: ActionSwitchRx, Pair: theirs}, Action{Kind: ActionRetire, Pair: mine})
		ready := a.one(MsgReady, a.hear(accept))
		if late {
			require.False(t, a.m.AcceptsPair(fromB))
			require.Empty(t, a.hear(fromB))
			require.Empty(t, a.did)
		}
		b.hear(ready)
		require.True(t, a.m.Quiescent() && b.m.Quiescent())
		require.True(t, a.m.TxPair().IsLocal())
	}
}

// TestHelloRefused by a side that has no queue pair for it, opening or not.
func TestHelloRefused(t *testing.T) {
	for _, opening := range []bool{false, true} {
		a, b := newParty(t, 1), newParty(t, 2)
		if opening {
			b.step(connect)
		}
		hello := a.one(MsgOpen, a.step(connect))
		refuse := b.one(MsgReject, b.step(Event{Kind: EventAttachFailed, Msg: hello}))
		b.does(Action{Kind: ActionFail, Reason: ReasonRejected})
		require.Empty(t, a.hear(refuse))
		a.does(Action{Kind: ActionFail, Reason: ReasonRejected})
	}
}

// TestClosedWhileItConnects: the end follows when the other side is ready to read it.
func TestClosedWhileItConnects(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	hello := a.one(MsgOpen, a.step(connect))
	require.Empty(t, a.step(Event{Kind: EventClose}))
	accept := b.one(MsgAccept, b.hear(hello))
	require.Empty(t, b.step(Event{Kind: EventClose}))
	said := a.hear(accept)
	require.Len(t, said, 2)
	a.does(
		Action{Kind: ActionConnect, Pair: mine}, Action{Kind: ActionSwitchRx, Pair: mine},
		Action{Kind: ActionSwitchTx, Pair: mine}, Action{Kind: ActionSwitchTx, Pair: End},
	)
	answers := b.hear(said[0])
	bye := b.one(MsgClose, answers[:1])
	b.one(MsgReady, answers[1:])
	b.does(Action{Kind: ActionSwitchTx, Pair: theirs}, Action{Kind: ActionSwitchTx, Pair: End})
	ackA, ackB := b.one(MsgCloseAck, b.hear(said[1])), a.one(MsgCloseAck, a.hear(bye))
	for _, p := range []*party{a, b} {
		p.step(Event{Kind: EventMarker, Pair: End})
		require.Equal(t, StateOpen, p.m.State(), "its end has no ack")
	}
	a.hear(ackA)
	a.does(Action{Kind: ActionClose})
	b.hear(ackB)
	b.does(Action{Kind: ActionClose})
	require.Empty(t, b.hear(hello), "late")
}

// TestStrays: who does not have the connection says so, and what that means depends
// on how far it was.
func TestStrays(t *testing.T) {
	gone := func(p *party, m Msg) Msg {
		a, ok := ResetFor([16]byte{9}, m)
		require.True(t, ok)
		require.Equal(t, Msg{Kind: MsgReset, Worker: [16]byte{9}, From: m.To, To: p.m.Conn()}, a)
		_, ok = ResetFor([16]byte{9}, a)
		require.False(t, ok, "nobody answers that")
		return a
	}
	t.Run("a hello of one that is over", func(t *testing.T) {
		a, b := newParty(t, 1), newParty(t, 2)
		hello := a.one(MsgOpen, a.step(connect))
		_, ok := ResetFor([16]byte{9}, hello)
		require.False(t, ok)
		b.hear(gone(b, b.one(MsgAccept, b.hear(hello))))
		b.does(Action{Kind: ActionFail, Reason: ReasonStale})
	})
	t.Run("a worker that was there before", func(t *testing.T) {
		a, _ := connected(t)
		offer := a.one(MsgMigrate, a.step(Event{Kind: EventMigrate}))
		a.hear(gone(a, offer))
		a.does(Action{Kind: ActionFail, Reason: ReasonPeerLost})
	})
	t.Run("an offer taken of one that is over", func(t *testing.T) {
		a, b := connected(t)
		take := b.one(MsgMigrateAck, b.hear(a.one(MsgMigrate, a.step(Event{Kind: EventMigrate}))))
		b.hear(gone(b, take))
		b.does(Action{Kind: ActionFail, Reason: ReasonPeerLost})
	})
	t.Run("a bye of one that has ended", func(t *testing.T) {
		a, b := connected(t)
		bye := a.one(MsgClose, a.step(Event{Kind: EventClose}))
		b.hear(bye)
		b.step(Event{Kind: EventMarker, Pair: End})
		back := b.one(MsgClose, b.step(Event{Kind: EventClose}))
		b.hear(gone(b, back))
		b.does(Action{Kind: ActionClose})
	})
	t.Run("a bye to one that has failed", func(t *testing.T) {
		a, _ := connected(t)
		a.hear(gone(a, a.one(MsgClose, a.step(Event{Kind: EventClose}))))
		a.does(Action{Kind: ActionFail, Reason: ReasonPeerLost})
	})
	t.Run("of another connection", func(t *testing.T) {
		a, _ := connected(t)
		require.Empty(t, a.hear(Msg{Kind: MsgReset, From: 77, To: 1}))
		require.Equal(t, StateOpen, a.m.State())
	})
}

// TestFailureIsSaid to the peer, who would not see it.
func TestFailureIsSaid(t *testing.T) {
	a, b := connected(t)
	b.hear(a.one(MsgReset, a.step(Event{Kind: EventPeerLost})))
	b.does(Action{Kind: ActionFail, Reason: ReasonPeerLost})
}

// TestGrowsInTwoSteps: the maker moves on the take, the other when it is told.
func TestGrowsInTwoSteps(t *testing.T) {
	a, b := connected(t)
	p2 := localPair(2)
	offer := a.one(MsgMigrate, a.step(Event{Kind: EventMigrate}))
	require.True(t, b.m.AcceptsPair(offer))
	take := b.one(MsgMigrateAck, b.hear(offer))
	require.Empty(t, b.did)
	require.False(t, b.m.CanMigrate())
	require.Equal(t, take, b.one(MsgMigrateAck, b.hear(offer)), "again")
	ready := a.one(MsgReady, a.hear(take))
	a.does(Action{Kind: ActionConnect, Pair: p2}, Action{Kind: ActionSwitchTx, Pair: p2})
	a.one(MsgReady, a.hear(take))
	require.Empty(t, a.did, "once")
	b.hear(ready)
	b.does(Action{Kind: ActionSwitchTx, Pair: p2.Flip()})
	b.step(Event{Kind: EventMarker, Pair: p2})
	b.does(Action{Kind: ActionSwitchRx, Pair: p2.Flip()}, Action{Kind: ActionRetire, Pair: theirs})
	a.step(Event{Kind: EventMarker, Pair: p2.Flip()})
	a.does(Action{Kind: ActionSwitchRx, Pair: p2}, Action{Kind: ActionRetire, Pair: mine})
}

// TestNothingLeadsIntoHalfAPair: not a marker, nor a yield, which no such peer says.
func TestNothingLeadsIntoHalfAPair(t *testing.T) {
	a, _ := connected(t)
	a.step(Event{Kind: EventMigrate})
	a.one(MsgReset, a.step(Event{Kind: EventMarker, Pair: localPair(2).Flip()}))
	a.does(Action{Kind: ActionFail, Reason: ReasonProtocolError})
	a = newParty(t, 1)
	a.step(connect)
	a.hear(Msg{Kind: MsgOpenCrossed, Worker: [16]byte{2}, From: 2, To: 1, Pair: theirs})
	a.does(Action{Kind: ActionFail, Reason: ReasonProtocolError})
}

// TestHalfAsleepGoesToSleep: the peer has left the pair, and a late refusal hid it.
func TestHalfAsleepGoesToSleep(t *testing.T) {
	a, b := connected(t)
	nap := a.one(MsgSuspend, a.step(Event{Kind: EventSuspend}))
	stay := b.one(MsgSuspendNak, b.step(Event{Kind: EventReceive, Msg: nap, Busy: true}))
	b.one(MsgSuspendAck, b.hear(nap)) // lost
	a.hear(stay)
	a.step(Event{Kind: EventMarker})
	a.does(Action{Kind: ActionSwitchRx})
	require.Empty(t, a.step(Event{Kind: EventSuspend}))
	a.does(Action{Kind: ActionSwitchTx}, Action{Kind: ActionRetire, Pair: mine})
	b.step(Event{Kind: EventMarker})
	b.does(Action{Kind: ActionSwitchRx}, Action{Kind: ActionRetire, Pair: theirs})
}
