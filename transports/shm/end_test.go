package shm

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// couple is two ifaces that have an endpoint on the same connection.
type couple struct {
	t      *testing.T
	a, b   *iface
	ra, rb recorder
	ab, ba *ep // ab made the connection
}

func newCouple(t *testing.T) *couple {
	c := &couple{t: t}
	c.a, c.b = openTest(t, &c.ra), openTest(t, &c.rb)
	c.ab = connectTest(t, c.a, c.b)
	require.Equal(t, ucs.OK, c.ab.AMShort(1, 0, nil))
	until(t, func() bool { return c.rb.n == 1 && c.ab.peerPage != nil }, c.a, c.b)
	c.ba = connectTest(t, c.b, c.a)
	require.False(t, c.ba.Has(conn.Initiated))
	return c
}

// TestSenderIsGoneBeforeTheAccept: what it sent was on its way.
func TestSenderIsGoneBeforeTheAccept(t *testing.T) {
	for name, leave := range map[string]func(a *iface, e *ep){
		"worker closed":   func(a *iface, _ *ep) { require.NoError(t, a.Close()) },
		"endpoint closed": func(_ *iface, e *ep) { e.Close() },
		"both":            func(a *iface, e *ep) { e.Close(); require.NoError(t, a.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			var ra, rb recorder
			a, b := openTest(t, &ra), openTest(t, &rb)
			e := connectTest(t, a, b)
			require.Equal(t, ucs.OK, e.AMShort(1, 0, []byte("first")))
			require.Equal(t, ucs.OK, e.AMShort(1, 0, []byte("last words")))
			leave(a, e)
			until(t, func() bool { return len(rb.failures) > 0 }, b)
			require.Equal(t, 2, rb.n)
			require.Equal(t, "last words", string(rb.last))
			require.Equal(t, []uct.Failure{{RxConn: 1}}, rb.failures)
			require.Zero(t, b.Len())
		})
	}
}

// TestProcessSendsAndEnds: the same of another process, in order and killed.
func TestProcessSendsAndEnds(t *testing.T) {
	for _, how := range []string{"orderly", "endpoint", "exit"} {
		t.Run(how, func(t *testing.T) {
			before := countFDs(t)
			var r recorder
			f := openTest(t, &r)
			p := start(t, "sendOnce")
			p.say(encodeAddress(addressOf(f)))
			p.say(how)
			require.Equal(t, "sent", p.hear())
			require.NoError(t, p.cmd.Wait())
			until(t, func() bool { return len(r.failures) > 0 }, f)
			require.Equal(t, 3, r.n)
			require.Len(t, r.failures, 1)
			require.Nil(t, r.failures[0].Endpoint)
			if how == "exit" {
				require.ErrorIs(t, r.failures[0].Err, ucs.ErrPeerFailed)
			} else {
				require.NoError(t, r.failures[0].Err)
			}
			require.NoError(t, f.Close())
			require.Equal(t, before, countFDs(t), "descriptors")
		})
	}
}

// roleSendOnce sends three messages at once and ends before anybody accepts.
func roleSendOnce(say func(string), hear func() string) {
	f := openRole(new(recorder))
	e := must(f.NewEndpoint(decodeAddress(hear())))
	for i := range uint64(3) {
		must(0, e.AMUint64(1, 0, i).Err())
	}
	switch hear() {
	case "orderly":
		must(0, f.Close())
	case "endpoint":
		e.Close()
	}
	runtime.KeepAlive(f)
	say("sent")
}

// TestCloseAfterThePeerEnded: closing finds the socket broken, which is no
// reason to lose what came before, nor to call the peer crashed.
func TestCloseAfterThePeerEnded(t *testing.T) {
	c := newCouple(t)
	require.Equal(t, ucs.OK, c.ab.AMShort(1, 0, []byte("last words")))
	require.NoError(t, c.a.Close())
	c.ba.Close()
	until(t, func() bool { return len(c.rb.failures) == 1 }, c.b)
	require.NoError(t, c.rb.failures[0].Err)
	require.Equal(t, "last words", string(c.rb.last))
	require.Zero(t, c.b.Len())
}

// TestPeerClosesWithMessagesUnread: a peer closes its worker and leaves messages on the socket unread.
// The system reports a reset before the peer's own messages, which say that the close is orderly.
func TestPeerClosesWithMessagesUnread(t *testing.T) {
	c := newCouple(t)
	require.NoError(t, c.ba.sock.Send(c.b.newConnMsg(kindSuspendNak, 0).append(nil)))
	require.NoError(t, c.a.Close())
	until(t, func() bool { return len(c.rb.failures) == 1 }, c.b)
	require.NoError(t, c.rb.failures[0].Err)
	require.True(t, c.rb.failures[0].Acked)
}

// TestUnacked: a message that is sent when the peer has closed its worker has no acknowledgement. One
// that the peer has not read, or that is in a ring pair left since, has.
func TestUnacked(t *testing.T) {
	for name, late := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			c := newCouple(t)
			require.Equal(t, ucs.OK, c.ba.AMShort(1, 0, []byte("unread")))
			require.NoError(t, c.a.Close())
			if late {
				require.Equal(t, ucs.OK, c.ba.AMShort(1, 0, []byte("late")))
			}
			until(t, func() bool { return len(c.rb.failures) == 1 }, c.b)
			require.NoError(t, c.rb.failures[0].Err)
			require.Equal(t, !late, c.rb.failures[0].Acked)
		})
	}
}

// TestProcessEndIsSeenBeforeItsSocket: what it said is taken all the same.
func TestProcessEndIsSeenBeforeItsSocket(t *testing.T) {
	c := newCouple(t)
	require.NoError(t, c.a.Close())
	c.b.dispatch(shmem.Event{Data: evProcess | uint64(c.ba.Slot())})
	until(t, func() bool { return len(c.rb.failures) == 1 }, c.b)
	require.NoError(t, c.rb.failures[0].Err)
}

// TestByeIsNoOrderlyEndOfTheWorker: a peer that gave its sending up and then
// crashed has lost what was sent to it. The end of its sending is told first.
func TestByeIsNoOrderlyEndOfTheWorker(t *testing.T) {
	for name, end := range map[string]struct {
		how  func(t *testing.T, c *couple)
		want error
	}{
		"crashed": {func(t *testing.T, c *couple) {
			require.NoError(t, c.ba.sock.Close())
			c.ba.sock = nil
		}, ucs.ErrPeerFailed},
		"closed its worker": {func(t *testing.T, c *couple) { require.NoError(t, c.b.Close()) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCouple(t)
			require.Equal(t, ucs.OK, c.ba.AMShort(1, 0, nil))
			c.ba.Close()
			until(t, func() bool { return len(c.ra.failures) == 1 }, c.a)
			require.Nil(t, c.ra.failures[0].Endpoint)
			require.NotZero(t, c.ra.failures[0].RxConn)
			require.NoError(t, c.ra.failures[0].Err)
			end.how(t, c)
			until(t, func() bool { return len(c.ra.failures) == 2 }, c.a)
			require.Equal(t, uct.Endpoint(c.ab), c.ra.failures[1].Endpoint)
			require.ErrorIs(t, c.ra.failures[1].Err, end.want)
		})
	}
}

// TestByeComesOnce: a peer that repeats itself is broken, and bounded.
func TestByeComesOnce(t *testing.T) {
	c := newCouple(t)
	for range 1000 {
		if c.ab.sock.Send(c.a.newConnMsg(kindClose, 0).append(nil)) != nil {
			break
		}
	}
	until(t, func() bool { return len(c.rb.failures) == 1 }, c.b)
	require.ErrorContains(t, c.rb.failures[0].Err, "does not fit here")
}

// TestFailedConnectionLetsSleep: until its endpoint is closed nothing of it may
// keep the event descriptor up or Arm busy, whichever way it failed.
func TestFailedConnectionLetsSleep(t *testing.T) {
	for name, fail := range map[string]func(c *couple){
		"peer closed":     func(c *couple) { require.NoError(t, c.a.Close()) },
		"garbage in ring": func(c *couple) { binary.NativeEndian.PutUint64(c.ab.pairs[0].seg.Bytes()[384+2*64:], 2|60<<40) },
		"impossible position": func(c *couple) {
			binary.NativeEndian.PutUint64(c.ab.pairs[0].seg.Bytes()[ringStride(c.a.layout)+128:], 1<<40)
			for c.ba.AMShort(1, 0, nil) == ucs.OK {
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCouple(t)
			fail(c)
			until(t, func() bool { return len(c.rb.failures) == 1 }, c.b)
			require.Equal(t, uct.Endpoint(c.ba), c.rb.failures[0].Endpoint)
			n := c.rb.n
			c.ab.AMShort(1, 0, nil)
			arm(t, c.b)
			require.False(t, readable(t, c.b, 0))
			require.Equal(t, n, c.rb.n, "a message after the failure")
			if c.a.state != closed {
				until(t, func() bool { return len(c.ra.failures) == 1 }, c.a) // it is told by the hang-up
				c.ab.Close()
			}
			c.ba.Close()
			until(t, func() bool { return c.b.Len() == 0 }, c.b)
		})
	}
}

// fillBacklog dials f until no more connections are taken.
func fillBacklog(t *testing.T, f *iface) (empty func()) {
	var cs []*shmem.Conn
	for {
		c, err := shmem.Dial(f.socketName(f.name))
		if err != nil {
			require.ErrorIs(t, err, shmem.ErrWouldBlock)
			break
		}
		cs = append(cs, c)
	}
	return func() {
		for _, c := range cs {
			require.NoError(t, c.Close())
		}
	}
}

// TestFullBacklog: messages, and the end of the endpoint, wait for their way.
func TestFullBacklog(t *testing.T) {
	for name, closes := range map[string]bool{"open": false, "closed meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			var ra, rb recorder
			a, b := openTest(t, &ra), openTest(t, &rb)
			a.scanInterval = config.Forever
			empty := fillBacklog(t, b)
			e := connectTest(t, a, b)
			require.Equal(t, ucs.OK, e.AMShort(1, 0, []byte("hello")))
			if closes {
				e.Close()
			}
			a.Progress(64)
			require.Equal(t, ucs.InProgress, a.Arm(uct.EventRecv), "nobody tells when the backlog has room")
			empty()
			until(t, func() bool { return rb.n == 1 && len(rb.failures) == map[bool]int{true: 1}[closes] }, a, b)
			until(t, func() bool { return len(a.undialed) == 0 }, a)
			e.Close()
			until(t, func() bool { return a.Len() == 0 && b.Len() == 0 }, a, b)
			require.Equal(t, []uct.Failure{{RxConn: 1}}, rb.failures)
		})
	}
}

// TestReleasedEndpointLeavesNothingInQueues: closed in HandleFailure, with
// tokens, while the worker goes to sleep.
func TestReleasedEndpointLeavesNothingInQueues(t *testing.T) {
	c := newCouple(t)
	for c.ba.AMShort(1, 0, nil) == ucs.OK {
	}
	require.Equal(t, ucs.OK, c.ba.PendingAdd(1))
	c.rb.onFailure = func(f uct.Failure) { f.Endpoint.Close() }
	require.NoError(t, c.a.Close())
	until(t, func() bool { return (c.ba.Life == conn.Released) }, c.b)
	for range 3 {
		for c.b.Arm(uct.EventSend) == ucs.Busy {
			c.b.Progress(64)
		}
	}
	c.ba.PendingPurge(func(uct.Token) {})
	require.LessOrEqual(t, len(c.b.waiting), 1)
}

// TestWaitingListHoldsEachOnce however often its queue is emptied.
func TestWaitingListHoldsEachOnce(t *testing.T) {
	c := newCouple(t)
	for c.ab.AMShort(1, 0, nil) == ucs.OK {
	}
	for range 10 {
		require.Equal(t, ucs.OK, c.ab.PendingAdd(1))
		c.ab.PendingPurge(func(uct.Token) {})
	}
	require.Len(t, c.a.waiting, 1)
	require.Equal(t, ucs.OK, c.ab.PendingAdd(1))
	require.NoError(t, c.a.Close())
	n := 0
	c.ab.PendingPurge(func(uct.Token) { n++ })
	require.Equal(t, 1, n, "tokens outlive the iface")
}

// TestDeathIsSeenWithoutAPidfd by the hang-up of the socket alone, awake, asleep
// and while the connection itself sleeps.
func TestDeathIsSeenWithoutAPidfd(t *testing.T) {
	for _, how := range []string{"awake", "armed", "idle"} {
		t.Run(how, func(t *testing.T) {
			var r recorder
			f := openTest(t, &r)
			p := start(t, "sendOnce")
			p.say(encodeAddress(addressOf(f)))
			until(t, func() bool { return r.n == 3 }, f)
			e := f.Slots[0]
			if e.pidfd >= 0 {
				require.NoError(t, f.epoll.Del(e.pidfd))
				shmem.CloseFDs(e.pidfd)
				e.pidfd = -1
			}
			switch how {
			case "armed":
				arm(t, f)
			case "idle":
				e.step(machine.Event{Kind: machine.EventSuspend}) // it never progresses, so it never agrees
			}
			p.kill()
			if how == "armed" {
				require.True(t, readable(t, f, patience))
			}
			until(t, func() bool { return len(r.failures) == 1 }, f)
			require.ErrorIs(t, r.failures[0].Err, ucs.ErrPeerFailed)
			require.Zero(t, f.Len())
		})
	}
}

// TestSilentConnections: connections that say nothing are bounded in number, and a peer
// connects while there are as many as may be.
func TestSilentConnections(t *testing.T) {
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	for range maxHalfOpen + 100 {
		c, err := shmem.Dial(b.socketName(b.name))
		for ; errors.Is(err, shmem.ErrWouldBlock); c, err = shmem.Dial(b.socketName(b.name)) {
			b.Progress(64)
		}
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
	}
	until(t, func() bool { return len(b.halfOpen) == maxHalfOpen }, b)
	before := ucs.Now()
	e := connectTest(t, a, b)
	require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
	until(t, func() bool { return rb.n == 1 }, a, b)
	require.Less(t, ucs.Now().Sub(before), openTimeout/2, "it need not wait until they are given up")
}
