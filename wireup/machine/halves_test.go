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
		Worker: [16]byte{id}, Conn: uint64(id), TwoStep: true, Timeout: time.Millisecond, Limit: 4 * time.Millisecond,
	})}
}

// step takes an event and gives the messages said and the other actions.
func (p *party) step(ev Event) []Msg {
	return p.at(0, ev)
}

func (p *party) at(now ucs.Time, ev Event) (said []Msg) {
	p.did = nil
	for _, a := range p.m.Step(now, ev, nil) {
		if a.Kind == Send {
			said = append(said, a.Msg)
			continue
		}
		p.did = append(p.did, a)
	}
	return said
}

// hear takes one message, with the half that it brings.
func (p *party) hear(m Msg) []Msg { return p.step(Event{Kind: Hear, Msg: m}) }

// one requires that there is one message, of that kind.
func (p *party) one(k Kind, said []Msg) Msg {
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
	mine, theirs = number(1), number(1).Flip()
	connect      = Event{Kind: Connect}
)

// connected are two sides of which a said hello, and both know that it is open.
func connected(t *testing.T) (a, b *party) {
	a, b = newParty(t, 1), newParty(t, 2)
	accept := b.one(Accept, b.hear(a.one(Hello, a.step(connect))))
	require.Empty(t, a.hear(b.one(Ready, b.hear(a.one(Ready, a.hear(accept))))))
	return a, b
}

// TestTwoMessagesBeforeTheFirst of the side that connects, and three before the
// other's: less where something arrives first.
func TestTwoMessagesBeforeTheFirst(t *testing.T) {
	for _, first := range []Event{
		{Kind: Hear, Msg: Msg{Kind: Ready, Worker: [16]byte{1}, From: 1, To: 2, Pair: mine}},
		{Kind: Arrived, Pair: theirs},
	} {
		a, b := newParty(t, 1), newParty(t, 2)
		hello := a.one(Hello, a.step(connect))
		a.does(Action{Kind: Make, Pair: mine})
		require.True(t, b.m.Wants(hello) && hello.Half())
		accept := b.one(Accept, b.hear(hello))
		b.does(Action{Kind: Read, Pair: theirs})
		require.Equal(t, theirs, b.m.Awaits())
		require.False(t, b.m.Met() || b.m.MayGrow() || b.m.Settled())
		require.False(t, b.m.Wants(hello), "again")
		ready := a.one(Ready, a.hear(accept))
		a.does(Action{Kind: Join, Pair: mine}, Action{Kind: Read, Pair: mine}, Action{Kind: Write, Pair: mine})
		require.Equal(t, mine, ready.Pair)
		require.Empty(t, b.step(Event{Kind: Arrived, Pair: theirs + 2}), "not that")
		require.Empty(t, b.did)
		require.True(t, b.m.HalfOpen())
		answer := b.step(first)
		b.does(Action{Kind: Write, Pair: theirs})
		require.False(t, b.m.HalfOpen())
		require.True(t, a.m.Settled() && b.m.Settled() && a.m.Met() && b.m.Met())
		require.Zero(t, b.m.Deadline())
		if first.Kind == Arrived {
			require.Empty(t, answer)
			answer = b.hear(ready)
			require.Empty(t, b.did)
		}
		require.NotZero(t, a.m.Deadline())
		require.Empty(t, a.hear(b.one(Ready, answer)))
		require.Empty(t, a.did)
		require.Zero(t, a.m.Deadline(), "it has nothing to retransmit")
	}
}

// TestLostMessagesAreSaidAgain: each of the four, and a side that receives one twice does
// nothing but answer.
func TestLostMessagesAreSaidAgain(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	first := a.one(Hello, a.step(connect))
	hello := a.one(Hello, a.at(a.m.Deadline(), Event{Kind: Tick}))
	require.Equal(t, first, hello)
	b.hear(hello) // the accept is lost
	b.one(Accept, b.hear(first))
	require.Empty(t, b.did)
	accept := b.one(Accept, b.at(b.m.Deadline(), Event{Kind: Tick}))
	a.hear(accept) // ready is lost
	again := b.one(Accept, b.at(b.m.Deadline(), Event{Kind: Tick}))
	ready := a.one(Ready, a.hear(again))
	require.Empty(t, a.did)
	require.Equal(t, ready, a.one(Ready, a.at(a.m.Deadline(), Event{Kind: Tick})))
	b.hear(ready) // the answer is lost
	b.does(Action{Kind: Write, Pair: theirs})
	require.Empty(t, b.hear(first), "no hello is answered any more")
	ready = a.one(Ready, a.at(a.m.Deadline(), Event{Kind: Tick}))
	a.hear(b.one(Ready, b.hear(ready)))
	require.Empty(t, b.did)
	require.Empty(t, append(a.did, b.did...))
	require.Zero(t, a.m.Deadline()+b.m.Deadline())
}

// TestForgedHello: a peer that does not answer gets three accepts for a hello, one more for
// each further hello, and no word of the end.
func TestForgedHello(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	b.m.conf.Limit = 50 * time.Millisecond
	hello := a.one(Hello, a.step(connect))
	n := len(b.hear(hello))
	for i := 0; b.m.State() != Failed; i++ {
		if i == 20 {
			n += len(b.hear(hello))
		}
		n += len(b.at(b.m.Deadline(), Event{Kind: Tick}))
		require.LessOrEqual(t, i, 50)
	}
	require.Equal(t, acceptTries+1, n)
	b.does(Action{Kind: Fail, Reason: PeerLost})
}

// TestUnansweredReady: the side that connected goes on where the peer sends nothing more.
func TestUnansweredReady(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	a.one(Ready, a.hear(b.one(Accept, b.hear(a.one(Hello, a.step(connect))))))
	for range 3 {
		a.one(Ready, a.at(a.m.Deadline(), Event{Kind: Tick}))
	}
	require.Empty(t, a.at(a.m.Deadline(), Event{Kind: Tick}))
	require.Empty(t, a.did)
	require.Equal(t, Open, a.m.State())
	require.Zero(t, a.m.Deadline())
	a.one(Nap, a.step(Event{Kind: Sleep}))
	for range 3 {
		a.one(Nap, a.at(a.m.Deadline(), Event{Kind: Tick}))
	}
	a.at(a.m.Deadline(), Event{Kind: Tick})
	a.does(Action{Kind: Fail, Reason: PeerLost})
}

// TestCrossingIsNotBound: the hello that gives way to this side's may be of a connection
// that is over when this side's comes, which is answered by another then.
func TestCrossingIsNotBound(t *testing.T) {
	a, gone, b := newParty(t, 1), newParty(t, 2), newParty(t, 3)
	hello := a.one(Hello, a.step(connect))
	require.Empty(t, a.hear(gone.one(Hello, gone.step(connect))))
	a.one(Ready, a.hear(b.one(Accept, b.hear(hello))))
	require.Equal(t, Open, a.m.State())
	require.EqualValues(t, 3, a.m.Remote())
}

// TestWhoIsNotHeardGivesUp on both sides of a handshake.
func TestWhoIsNotHeardGivesUp(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	b.hear(a.one(Hello, a.step(connect)))
	for _, p := range []*party{a, b} {
		n := 0
		for p.m.State() != Failed {
			p.at(p.m.Deadline(), Event{Kind: Tick})
			n++
			require.LessOrEqual(t, n, 4)
		}
		p.does(Action{Kind: Fail, Reason: PeerLost})
		require.Zero(t, p.m.Deadline())
	}
}

// TestCrossingHellos: the smaller worker's stands, in whatever order they come, and
// the other's half goes at once.
func TestCrossingHellos(t *testing.T) {
	for _, late := range []bool{false, true} {
		a, b := newParty(t, 1), newParty(t, 2)
		fromA, fromB := a.one(Hello, a.step(connect)), b.one(Hello, b.step(connect))
		require.False(t, a.m.Wants(fromB))
		require.True(t, b.m.Wants(fromA))
		if !late {
			require.Empty(t, a.hear(fromB))
			require.Empty(t, a.did)
		}
		accept := b.one(Accept, b.hear(fromA))
		b.does(Action{Kind: Read, Pair: theirs}, Action{Kind: Retire, Pair: mine})
		ready := a.one(Ready, a.hear(accept))
		if late {
			require.False(t, a.m.Wants(fromB))
			require.Empty(t, a.hear(fromB))
			require.Empty(t, a.did)
		}
		b.hear(ready)
		require.True(t, a.m.Settled() && b.m.Settled())
		require.True(t, a.m.Out().Mine())
	}
}

// TestHelloRefused by a side that has no queue pair for it, opening or not.
func TestHelloRefused(t *testing.T) {
	for _, opening := range []bool{false, true} {
		a, b := newParty(t, 1), newParty(t, 2)
		if opening {
			b.step(connect)
		}
		hello := a.one(Hello, a.step(connect))
		refuse := b.one(Refuse, b.step(Event{Kind: Unable, Msg: hello}))
		b.does(Action{Kind: Fail, Reason: Refused})
		require.Empty(t, a.hear(refuse))
		a.does(Action{Kind: Fail, Reason: Refused})
	}
}

// TestClosedWhileItConnects: the end follows when the other side is ready to read it.
func TestClosedWhileItConnects(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	hello := a.one(Hello, a.step(connect))
	require.Empty(t, a.step(Event{Kind: Close}))
	accept := b.one(Accept, b.hear(hello))
	require.Empty(t, b.step(Event{Kind: Close}))
	said := a.hear(accept)
	require.Len(t, said, 2)
	a.does(
		Action{Kind: Join, Pair: mine}, Action{Kind: Read, Pair: mine},
		Action{Kind: Write, Pair: mine}, Action{Kind: Write, Pair: End},
	)
	answers := b.hear(said[0])
	bye := b.one(Bye, answers[:1])
	b.one(Ready, answers[1:])
	b.does(Action{Kind: Write, Pair: theirs}, Action{Kind: Write, Pair: End})
	ackA, ackB := b.one(ByeAck, b.hear(said[1])), a.one(ByeAck, a.hear(bye))
	for _, p := range []*party{a, b} {
		p.step(Event{Kind: Marker, Pair: End})
		require.Equal(t, Open, p.m.State(), "its end has no ack")
	}
	a.hear(ackA)
	a.does(Action{Kind: Ended})
	b.hear(ackB)
	b.does(Action{Kind: Ended})
	require.Empty(t, b.hear(hello), "late")
}

// TestStrays: who does not have the connection says so, and what that means depends
// on how far it was.
func TestStrays(t *testing.T) {
	gone := func(p *party, m Msg) Msg {
		a, ok := Stray([16]byte{9}, m)
		require.True(t, ok)
		require.Equal(t, Msg{Kind: Gone, Worker: [16]byte{9}, From: m.To, To: p.m.Conn()}, a)
		_, ok = Stray([16]byte{9}, a)
		require.False(t, ok, "nobody answers that")
		return a
	}
	t.Run("a hello of one that is over", func(t *testing.T) {
		a, b := newParty(t, 1), newParty(t, 2)
		hello := a.one(Hello, a.step(connect))
		_, ok := Stray([16]byte{9}, hello)
		require.False(t, ok)
		b.hear(gone(b, b.one(Accept, b.hear(hello))))
		b.does(Action{Kind: Fail, Reason: Stale})
	})
	t.Run("a worker that was there before", func(t *testing.T) {
		a, _ := connected(t)
		offer := a.one(Offer, a.step(Event{Kind: Grow}))
		a.hear(gone(a, offer))
		a.does(Action{Kind: Fail, Reason: PeerLost})
	})
	t.Run("an offer taken of one that is over", func(t *testing.T) {
		a, b := connected(t)
		take := b.one(Take, b.hear(a.one(Offer, a.step(Event{Kind: Grow}))))
		b.hear(gone(b, take))
		b.does(Action{Kind: Fail, Reason: PeerLost})
	})
	t.Run("a bye of one that has ended", func(t *testing.T) {
		a, b := connected(t)
		bye := a.one(Bye, a.step(Event{Kind: Close}))
		b.hear(bye)
		b.step(Event{Kind: Marker, Pair: End})
		back := b.one(Bye, b.step(Event{Kind: Close}))
		b.hear(gone(b, back))
		b.does(Action{Kind: Ended})
	})
	t.Run("a bye to one that has failed", func(t *testing.T) {
		a, _ := connected(t)
		a.hear(gone(a, a.one(Bye, a.step(Event{Kind: Close}))))
		a.does(Action{Kind: Fail, Reason: PeerLost})
	})
	t.Run("of another connection", func(t *testing.T) {
		a, _ := connected(t)
		require.Empty(t, a.hear(Msg{Kind: Gone, From: 77, To: 1}))
		require.Equal(t, Open, a.m.State())
	})
}

// TestFailureIsSaid to the peer, who would not see it.
func TestFailureIsSaid(t *testing.T) {
	a, b := connected(t)
	b.hear(a.one(Gone, a.step(Event{Kind: Lost})))
	b.does(Action{Kind: Fail, Reason: PeerLost})
}

// TestGrowsInTwoSteps: the maker moves on the take, the other when it is told.
func TestGrowsInTwoSteps(t *testing.T) {
	a, b := connected(t)
	p2 := number(2)
	offer := a.one(Offer, a.step(Event{Kind: Grow}))
	require.True(t, b.m.Wants(offer))
	take := b.one(Take, b.hear(offer))
	require.Empty(t, b.did)
	require.False(t, b.m.MayGrow())
	require.Equal(t, take, b.one(Take, b.hear(offer)), "again")
	ready := a.one(Ready, a.hear(take))
	a.does(Action{Kind: Join, Pair: p2}, Action{Kind: Write, Pair: p2})
	a.one(Ready, a.hear(take))
	require.Empty(t, a.did, "once")
	b.hear(ready)
	b.does(Action{Kind: Write, Pair: p2.Flip()})
	b.step(Event{Kind: Marker, Pair: p2})
	b.does(Action{Kind: Read, Pair: p2.Flip()}, Action{Kind: Retire, Pair: theirs})
	a.step(Event{Kind: Marker, Pair: p2.Flip()})
	a.does(Action{Kind: Read, Pair: p2}, Action{Kind: Retire, Pair: mine})
}

// TestNothingLeadsIntoHalfAPair: not a marker, nor a yield, which no such peer says.
func TestNothingLeadsIntoHalfAPair(t *testing.T) {
	a, _ := connected(t)
	a.step(Event{Kind: Grow})
	a.one(Gone, a.step(Event{Kind: Marker, Pair: number(2).Flip()}))
	a.does(Action{Kind: Fail, Reason: Broken})
	a = newParty(t, 1)
	a.step(connect)
	a.hear(Msg{Kind: Yield, Worker: [16]byte{2}, From: 2, To: 1, Pair: theirs})
	a.does(Action{Kind: Fail, Reason: Broken})
}

// TestHalfAsleepGoesToSleep: the peer has left the pair, and a late refusal hid it.
func TestHalfAsleepGoesToSleep(t *testing.T) {
	a, b := connected(t)
	nap := a.one(Nap, a.step(Event{Kind: Sleep}))
	stay := b.one(Stay, b.step(Event{Kind: Hear, Msg: nap, Busy: true}))
	b.one(Asleep, b.hear(nap)) // lost
	a.hear(stay)
	a.step(Event{Kind: Marker})
	a.does(Action{Kind: Read})
	require.Empty(t, a.step(Event{Kind: Sleep}))
	a.does(Action{Kind: Write}, Action{Kind: Retire, Pair: mine})
	b.step(Event{Kind: Marker})
	b.does(Action{Kind: Read}, Action{Kind: Retire, Pair: theirs})
}
