package shm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// sequence is a receiver that keeps the headers of what comes, and a sender that counts
// them up over all connections.
type sequence struct {
	recorder
	next uint64
	got  []uint64
}

func newSequence() *sequence {
	s := &sequence{}
	s.onAM = func(d uct.Desc, _ []byte) { s.got = append(s.got, d.Header) }
	return s
}

func (s *sequence) send(t *testing.T, e *ep, n int) {
	for range n {
		require.Equal(t, ucs.OK, e.AMUint64(1, s.next, 0))
		s.next++
	}
}

// receive waits for everything that was sent and requires its order.
func (s *sequence) receive(t *testing.T, fs ...*iface) {
	t.Helper()
	until(t, func() bool { return uint64(len(s.got)) >= s.next }, fs...)
	require.Len(t, s.got, int(s.next))
	for i, h := range s.got {
		require.EqualValues(t, i, h)
	}
}

// TestClosedConnectionIsReadFirst: the receiver accepts the closed connection before the
// next one is made, or finds both; it reads many others, or none.
func TestClosedConnectionIsReadFirst(t *testing.T) {
	for name, tc := range map[string]struct{ others, between int }{
		"both new":         {0, 0},
		"one is read":      {0, 3},
		"beside others":    {2 * maxHot, 0},
		"cold, one is new": {2 * maxHot, 3},
	} {
		t.Run(name, func(t *testing.T) {
			rb := newSequence()
			a, b := openTest(t, new(recorder)), openTest(t, rb)
			busy := openTest(t, new(recorder))
			for range tc.others {
				connectTest(t, busy, b)
			}
			until(t, func() bool { return b.Len() == tc.others }, b, busy)
			for _, n := range []int{1, drainBatch, drainBatch + 1, 31, 3} {
				e := connectTest(t, a, b)
				rb.send(t, e, n)
				for range tc.between {
					b.serviceNeeded = true
					b.slowPass() // one batch of messages at most
				}
				e.Close()
			}
			rb.receive(t, b)
			until(t, func() bool { return a.Len() == 0 }, a, b)
			require.Empty(t, b.ByPeer[a.name])
		})
	}
}

// TestConnectionThatThePeerReadsIsNotTaken once another was closed: the peer may read it
// before the last messages of the closed one.
func TestConnectionThatThePeerReadsIsNotTaken(t *testing.T) {
	for _, name := range []string{"accepted before the close", "accepted after it"} {
		t.Run(name, func(t *testing.T) {
			rb := newSequence()
			a, b := openTest(t, new(recorder)), openTest(t, rb)
			first := connectTest(t, a, b)
			rb.send(t, first, 1)
			until(t, func() bool { return len(rb.got) == 1 && first.peerPage != nil }, a, b)
			answer := connectTest(t, b, a)
			require.False(t, answer.Has(conn.Initiated))
			theirs := connectTest(t, b, a)
			require.True(t, theirs.Has(conn.Initiated))
			if name == "accepted before the close" {
				until(t, func() bool { return a.Len() == 2 && theirs.rxPair != machine.None }, a, b)
			}
			rb.send(t, first, 30)
			first.Close()
			until(t, func() bool { return a.Len() == 2 }, a)
			second := connectTest(t, a, b)
			require.True(t, second.Has(conn.Initiated))
			rb.send(t, second, 10)
			theirs.continueHandshake() // the answer of a is there
			rb.receive(t, b)
			answer.Close()
			until(t, func() bool { return (first.Life == conn.Released) && (answer.Life == conn.Released) }, a, b)
			second.Close()
			until(t, func() bool { return (second.Life == conn.Released) }, a, b)
			third := connectTest(t, a, b)
			require.True(t, third.Has(conn.Initiated), "the peer has read its own all the time")
			until(t, func() bool { return third.peerPage != nil }, a, b)
			require.False(t, connectTest(t, b, a).Has(conn.Initiated), "of a closed one nothing is left to read")
		})
	}
}

// TestConnectionOfThePeerIsClosed that its maker does not know as accepted yet.
func TestConnectionOfThePeerIsClosed(t *testing.T) {
	rb := newSequence()
	a, b := openTest(t, new(recorder)), openTest(t, rb)
	theirs := connectTest(t, b, a)
	until(t, func() bool { return a.Len() == 1 }, a)
	first := connectTest(t, a, b)
	require.False(t, first.Has(conn.Initiated))
	rb.send(t, first, 30)
	first.Close()
	second := connectTest(t, a, b)
	require.True(t, second.Has(conn.Initiated))
	rb.send(t, second, 30)
	require.Equal(t, machine.StateOpening, theirs.M.State())
	b.accept() // before it looks at the socket of its own connection
	rb.receive(t, b)
}

// TestAcceptComesWithTheEnd: what was sent in between is not lost.
func TestAcceptComesWithTheEnd(t *testing.T) {
	rb := newSequence()
	a, b := openTest(t, new(recorder)), openTest(t, rb)
	theirs := connectTest(t, b, a)
	until(t, func() bool { return a.Len() == 1 }, a)
	rb.send(t, connectTest(t, a, b), 5)
	require.NoError(t, a.Close())
	theirs.Add(sendFailed) // EPIPE
	b.Schedule(theirs)
	b.Service(b.serviceEP)
	require.Len(t, rb.got, 5)
	require.Len(t, rb.failures, 1)
}

// TestHellosAreReadInOrder whichever of them the receiver sees first.
func TestHellosAreReadInOrder(t *testing.T) {
	rb := newSequence()
	a, b := openTest(t, new(recorder)), openTest(t, rb)
	silent, err := shmem.Dial(b.socketName(b.name))
	require.NoError(t, err)
	for range 3 {
		e := connectTest(t, a, b)
		rb.send(t, e, 20)
		e.Close()
	}
	for range 4 {
		sock, err := b.listener.Accept()
		require.NoError(t, err)
		cred, err := sock.Peer()
		require.NoError(t, err)
		b.halfOpenID++
		b.halfOpen[b.halfOpenID] = halfOpenConn{sock, ucs.Now(), cred.PID}
		require.NoError(t, b.epoll.Add(sock.FD(), evHalfOpen|uint64(b.halfOpenID), shmem.EventIn))
	}
	b.receiveOpen(b.halfOpenID)
	require.Len(t, b.halfOpen, 1, "that has said nothing, and holds up nobody")
	rb.receive(t, b)
	require.NoError(t, silent.Close())
	until(t, func() bool { return len(b.halfOpen) == 0 }, b)
}

// TestConnectionsAreDialledInOrder where the peer's backlog was full, until one of them
// ends.
func TestConnectionsAreDialledInOrder(t *testing.T) {
	for _, dies := range []bool{false, true} {
		rb := newSequence()
		a, b := openTest(t, new(recorder)), openTest(t, rb)
		empty := fillBacklog(t, b)
		first := connectTest(t, a, b)
		if dies {
			a.FailLater(first, conn.ErrProtocol)
		} else {
			rb.send(t, first, 20)
		}
		first.Close()
		second := connectTest(t, a, b)
		rb.send(t, second, 20)
		require.Nil(t, first.sock)
		require.Nil(t, second.sock)
		for b.halfOpenID == 0 {
			b.Progress(64) // the backlog has room
		}
		second.continueHandshake()
		require.Equal(t, dies, second.sock != nil, "the first comes first as long as it is to come")
		third := connectTest(t, a, b)
		rb.send(t, third, 1)
		empty()
		rb.receive(t, a, b)
		until(t, func() bool { return len(a.undialed) == 0 }, a)
		require.Nil(t, third.dialAfter)
	}
}

// TestNewConnectionDoesNotWait for an older one that goes on, fails, or ends.
func TestNewConnectionDoesNotWait(t *testing.T) {
	for name, how := range map[string]func(a *iface, old *ep){
		"nothing":    func(*iface, *ep) {},
		"hangs up":   func(_ *iface, old *ep) { old.Life.Step(conn.HangUp); _ = old.disconnect() },
		"lies":       func(_ *iface, old *ep) { old.tx.Mark(12345) },
		"sleeps":     func(_ *iface, old *ep) { old.step(machine.Event{Kind: machine.EventSuspend}) },
		"closes all": func(a *iface, old *ep) { old.Close(); old.sendClose(kindShutdown) },
	} {
		t.Run(name, func(t *testing.T) {
			var rb recorder
			a, b := openTest(t, new(recorder)), openTest(t, &rb)
			old := connectTest(t, a, b)
			require.Equal(t, ucs.OK, old.AMUint64(1, 1, 0))
			until(t, func() bool { return rb.n == 1 && old.peerPage != nil }, a, b)
			for range 30 {
				require.Equal(t, ucs.OK, old.AMUint64(1, 1, 0))
			}
			how(a, old)
			e := connectTest(t, a, b)
			require.Equal(t, ucs.OK, e.AMUint64(1, 2, 0))
			until(t, func() bool { return rb.header == 2 }, b)
			require.Equal(t, 32, rb.n)
		})
	}
}

// TestPeerThatSendsOnStallsNobody: its older connection never runs empty, and it makes
// new ones all the time.
func TestPeerThatSendsOnStallsNobody(t *testing.T) {
	var rb recorder
	a, b, other := openTest(t, new(recorder)), openTest(t, &rb), openTest(t, new(recorder))
	old := connectTest(t, a, b)
	var heard []uint64
	rb.onAM = func(d uct.Desc, _ []byte) {
		if d.Header != 1 {
			heard = append(heard, d.Header)
			return
		}
		for range 2 { // more than is received
			_ = old.AMUint64(1, 1, 0) // the ring may be full
		}
	}
	require.Equal(t, ucs.OK, old.AMUint64(1, 1, 0))
	until(t, func() bool { return !old.tx.Room() }, b)
	for range 10 {
		e := connectTest(t, a, b)
		require.Equal(t, ucs.OK, e.AMUint64(1, 2, 0))
	}
	require.Equal(t, ucs.OK, connectTest(t, other, b).AMUint64(1, 3, 0))
	b.requestService()
	require.Less(t, b.slowPass(), 5*old.ringCapacity())
	require.Len(t, heard, 11)
	require.Contains(t, heard, uint64(3))
	rb.onAM = nil
}

// TestConnectionThatCouldCross with one of the peer's, while the peer has yet to accept a
// closed one. Chance decides which of two that cross stands.
func TestConnectionThatCouldCross(t *testing.T) {
	for range 16 {
		rb := newSequence()
		a, b := openTest(t, new(recorder)), openTest(t, rb)
		beside := connectTest(t, a, b)
		until(t, func() bool { return b.Len() == 1 }, b)
		require.False(t, connectTest(t, b, a).Has(conn.Initiated))
		first := connectTest(t, a, b)
		rb.send(t, first, 20)
		first.Close()
		beside.readSocket()
		require.Equal(t, machine.StateOpen, beside.M.State())
		theirs := connectTest(t, b, a)
		require.True(t, theirs.Has(conn.Initiated))
		second := connectTest(t, a, b)
		rb.send(t, second, 20)
		until(t, func() bool { return len(a.ByPeer[b.name]) == 4 || second.crossedSock != nil || second.peerPage != nil }, a)
		theirs.continueHandshake()
		b.startReads()
		rb.receive(t, b)
	}
}
