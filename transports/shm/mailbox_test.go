package shm

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// rally is two ifaces whose messages alternate.
type rally struct {
	t    *testing.T
	r    [2]recorder
	f    [2]*iface
	e    [2]*ep
	next uint64
}

func newRally(t *testing.T, environment ...string) *rally {
	t.Helper()
	y := &rally{t: t}
	set, err := loaded(append([]string{}, environment...)...)
	require.NoError(t, err)
	for k := range 2 {
		f, err := openIface(newTestDomain(t), uct.IfaceInfo{}, uct.IfaceConfig{Handler: &y.r[k], Worker: uct.UUID{byte(k)}, Settings: set})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, f.Close()) })
		y.f[k] = f.(*iface)
		y.f[k].scanInterval = config.Forever
	}
	y.e[0] = connectTest(t, y.f[0], y.f[1])
	y.send(0)
	y.e[1] = connectTest(t, y.f[1], y.f[0])
	y.send(1)
	return y
}

// send sends a message from side k, and has the other side receive it.
func (y *rally) send(k int) {
	y.next++
	seq := y.next
	got := y.r[1-k].n
	until(y.t, func() bool { // has to wait only while the connection moves
		s := y.e[k].AMUint64(5, seq, ^seq)
		require.True(y.t, s == ucs.OK || s == ucs.NoResource && !y.e[k].M.Quiescent(), s)
		return s == ucs.OK
	}, y.f[0], y.f[1])
	until(y.t, func() bool { return y.r[1-k].n > got }, y.f[1-k])
	require.Equal(y.t, got+1, y.r[1-k].n)
	require.Equal(y.t, seq, y.r[1-k].header)
	require.EqualValues(y.t, 5, y.r[1-k].id)
	require.Len(y.t, y.r[1-k].last, 8)
}

// play alternates n times, with so many idle passes after each message.
func (y *rally) play(n, idle int) {
	for range n {
		for k := range 2 {
			y.send(k)
			for range idle {
				y.f[k].Progress(64)
			}
		}
	}
}

// taken counts the messages of n more exchanges that side k took from its mailbox.
func (y *rally) taken(k, n int) (mails uint64) {
	b := &y.e[k].mail
	for range n {
		before := b.taken
		y.play(1, 1)
		if b.taken == before+1 || b.taken == 1 && before > 1 { // a service between counts anew
			mails++
		}
	}
	return mails
}

// start alternates until both sides poll their mailboxes, with tuners that find it worth while.
func (y *rally) start() {
	for i := 0; y.e[0].mail.state != mailOn || y.e[1].mail.state != mailOn; i++ {
		require.Less(y.t, i, 1000, "the mailbox is not used")
		for k := range 2 {
			y.e[k].mail.tuner = mailTuner{viaRing: 1 << 40}
		}
		y.play(20, 20)
	}
}

// TestMailboxOfAlternatingMessages: connections whose messages alternate come to use the mailbox, in both directions. One
// whose messages do not alternate does not, and gives it up.
func TestMailboxOfAlternatingMessages(t *testing.T) {
	y := newRally(t)
	y.start()
	require.Greater(t, y.taken(0, 100), uint64(90))
	require.Greater(t, y.taken(1, 100), uint64(90))

	for i := 0; y.e[1].mail.state == mailOn; i++ {
		require.Less(t, i, 1000, "a stream of messages keeps the mailbox")
		for range 100 {
			y.send(0)
			y.f[1].Progress(64)
		}
	}
	require.Nil(t, y.f[1].mail.ep)
	for range 3000 {
		y.send(0)
	}
	require.Equal(t, mailOff, y.e[1].mail.state)
	y.start()
	require.Greater(t, y.taken(0, 100), uint64(90), "it is used again")
}

// TestMailboxIsNotTriedInVain: messages that alternate and are too long for the mailbox have it tried ever more rarely.
func TestMailboxIsNotTriedInVain(t *testing.T) {
	y := newRally(t)
	long := make([]byte, ring.MailMax+1)
	play := func(n int) uint64 {
		began := y.f[0].stats.Value(statMailbox)
		for range n {
			for k := range 2 {
				got := y.r[1-k].n
				require.Equal(t, ucs.OK, y.e[k].AMShort(5, 1, long))
				until(t, func() bool { return y.r[1-k].n > got }, y.f[1-k])
				y.f[k].Progress(64)
			}
		}
		return y.f[0].stats.Value(statMailbox) - began
	}
	const most = 8 // a side that loses the processor for long may try once more
	first := play(20_000)
	require.Positive(t, first)
	require.LessOrEqual(t, first, uint64(most))
	require.LessOrEqual(t, play(80_000), uint64(most), "four times the messages")
}

// TestMailboxBetweenThreads: two sides that run at once send bursts of messages of all lengths. All arrive once and in order, by
// both ways, while the sides begin and end to poll their mailboxes.
func TestMailboxBetweenThreads(t *testing.T) {
	y := newRally(t)
	length := time.Second
	if testing.Short() {
		length /= 4
	}
	limit := ucs.Now().Add(length)
	var done [2]atomic.Uint64 // messages that the side will send; 0: not known yet
	var mails atomic.Uint64
	side := func(k int) error {
		rnd := rand.New(rand.NewPCG(uint64(k), 3))
		f, e, r := y.f[k], y.e[k], &y.r[k]
		var sent, received uint64
		var fault error
		r.onAM = func(d uct.Desc, b []byte) {
			if received++; d.Header != received || len(b) > 0 && b[len(b)-1] != byte(received) {
				fault = errors.Join(fault, fmt.Errorf("message %d of %d bytes instead of %d", d.Header, len(b), received))
			}
		}
		owed, buf := 1-k, make([]byte, 200)
		for i := 0; fault == nil; i++ {
			over := done[k].Load() != 0
			if n := done[1-k].Load(); over && n != 0 && received == n-1 {
				break
			}
			before := received
			if e.mail.state == mailOn && e.rx.MailReady() {
				mails.Add(1)
			}
			if f.Progress(64); received > before {
				owed++
			}
			if i&0xffff == 0xffff {
				cpu.Yield()
			}
			if i&0xfff == 0xfff {
				if rnd.IntN(8) == 0 {
					owed++ // both may have waited
				}
				if ucs.Now() > limit.Add(patience) {
					return fmt.Errorf("side %d waits for message %d", k, received+1)
				}
			}
			if over || owed == 0 {
				continue
			}
			owed = 0
			n := 1
			if rnd.IntN(400) == 0 {
				n = rnd.IntN(40)
			}
			for ; n > 0; n-- {
				l := 8
				if rnd.IntN(100) == 0 {
					l = rnd.IntN(len(buf))
				}
				if l > 0 {
					buf[l-1] = byte(sent + 1)
				}
				if s := e.AMShort(1, sent+1, buf[:l]); s != ucs.OK {
					if s != ucs.NoResource {
						return fmt.Errorf("side %d: %w", k, s.Err())
					}
					owed++
					break
				}
				sent++
			}
			if sent&127 == 0 && ucs.Now() > limit {
				done[k].Store(sent + 1)
			}
		}
		return fault
	}
	ended := make(chan error, 1)
	go func() { ended <- side(1) }()
	err := side(0)
	require.NoError(t, errors.Join(err, <-ended))
	t.Logf("%d messages, %d seen in a mailbox, which was begun to be used %d times", done[0].Load(), mails.Load(), y.f[0].stats.Value(statMailbox))
	if done[0].Load() > 50_000 { // both had a processor
		require.Positive(t, y.f[0].stats.Value(statMailbox))
	}
}

// TestMailboxIsGivenUpWhenIdle: a connection that has become idle no longer keeps others from the mailbox.
func TestMailboxIsGivenUpWhenIdle(t *testing.T) {
	y := newRally(t)
	y.start()
	// A service comes after some time, and after servicePasses at the latest.
	for end := ucs.Now().Add(10 * time.Second); y.e[0].mail.state != mailOff && ucs.Now() < end; {
		y.f[0].Progress(64)
	}
	require.Equal(t, mailOff, y.e[0].mail.state)
	require.Nil(t, y.f[0].mail.ep)
	y.play(10, 0) // side 1 still polls
	y.start()
}

// TestMailboxSwitchedOff: neither with the setting n, nor with a peer that does not have the feature.
func TestMailboxSwitchedOff(t *testing.T) {
	y := newRally(t, "UCX_SHM_MAILBOX=n")
	y.play(500, 20)
	for k := range 2 {
		require.Equal(t, mailRefused, y.e[k].mail.state)
	}
	_, err := loaded("UCX_SHM_MAILBOX=y")
	require.ErrorContains(t, err, "UCX_SHM_MAILBOX")

	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	b.features &^= featureMailbox
	e := connectTest(t, a, b)
	require.Equal(t, ucs.OK, e.AMUint64(1, 2, 3))
	until(t, func() bool { return rb.n == 1 && e.peerPage != nil }, a, b)
	require.Equal(t, mailRefused, e.mail.state)
	require.NotEqual(t, copiesRefused, e.copies.state, "another feature")
}

// TestMailboxMessageIsNotLost: a message that is sent in the mailbox while the peer stops to poll it is received, by a
// service, with the messages behind it in the ring; and by a worker that arms.
func TestMailboxMessageIsNotLost(t *testing.T) {
	y := newRally(t)
	y.start()
	y.play(2, 1)
	require.True(t, y.e[0].tx.Offered())
	got := y.r[1].n
	require.Equal(t, ucs.OK, y.e[0].AMShort(5, 1, []byte("mail")))
	require.True(t, y.e[1].rx.MailReady())
	require.Equal(t, ucs.OK, y.e[0].AMShort(5, 2, []byte("ring")))
	y.f[1].leaveMailbox()
	require.Equal(t, ucs.Busy, y.f[1].Arm(uct.EventRecv), "there is a message")
	until(t, func() bool { return y.r[1].n == got+2 }, y.f[1])
	require.Equal(t, "ring", string(y.r[1].last))
	require.Equal(t, ucs.OK, y.f[1].Arm(uct.EventRecv))
}

// TestMailboxWakesSleeper: a message in the mailbox signals the event of a peer that is armed.
func TestMailboxWakesSleeper(t *testing.T) {
	y := newRally(t)
	y.start()
	y.play(2, 1)
	until(t, func() bool { return y.f[1].Arm(uct.EventRecv) == ucs.OK }, y.f[1])
	require.True(t, y.e[0].tx.Offered())
	got := y.r[1].n
	require.Equal(t, ucs.OK, y.e[0].AMUint64(5, 1, 2))
	require.True(t, y.e[1].rx.MailReady())
	require.True(t, readable(t, y.f[1], patience))
	until(t, func() bool { return y.r[1].n == got+1 }, y.f[1])
}

// TestMailboxReplyInHandler: replies of handlers go through the mailbox too, but not while the
// handler reads messages in the ring. A request without a reply leaves the turn to the next one's reply.
func TestMailboxReplyInHandler(t *testing.T) {
	y := newRally(t)
	y.start()
	const silent = math.MaxUint64
	y.r[1].onAM = func(d uct.Desc, _ []byte) {
		if d.Header != silent {
			require.Equal(t, ucs.OK, y.e[1].AMUint64(5, d.Header, 0))
		}
	}
	mails := 0
	for i := range uint64(200) {
		got := y.r[0].n
		if i >= 150 { // the messages alternate no longer, which ends the use of the mailbox
			received := y.r[1].n
			require.Equal(t, ucs.OK, y.e[0].AMUint64(5, silent, 0))
			until(t, func() bool { return y.r[1].n > received }, y.f[1])
		}
		require.Equal(t, ucs.OK, y.e[0].AMUint64(5, i, 0))
		inRing := y.e[1].rx.Ready()
		until(t, func() bool { return y.r[0].n > got || y.e[0].ready() }, y.f[1])
		require.False(t, inRing && y.e[0].rx.MailReady(), "the message in the ring is acknowledged while it is read")
		if y.e[0].rx.MailReady() {
			mails++
		}
		until(t, func() bool { return y.r[0].n > got }, y.f[0])
		require.Equal(t, i, y.r[0].header)
	}
	require.Greater(t, mails, 100)
}

// TestMailboxGarbage: a peer that writes a message which is too long fails, and nothing else does.
func TestMailboxGarbage(t *testing.T) {
	y := newRally(t)
	y.start()
	y.play(2, 1)
	require.True(t, y.e[0].takeTurn())
	y.e[0].tx.PublishMail(1, 17, 0)
	until(t, func() bool { return len(y.r[1].failures) == 1 }, y.f[1])
	require.ErrorIs(t, y.r[1].failures[0].Err, ucs.ErrPeerFailed)
	require.ErrorContains(t, y.r[1].failures[0].Err, "mailbox")
	require.EqualValues(t, 1, y.f[1].stats.Value(statGarbage))
	require.Nil(t, y.f[1].mail.ep)

	var other recorder
	c := openTest(t, &other)
	e := connectTest(t, c, y.f[1])
	got := y.r[1].n
	require.Equal(t, ucs.OK, e.AMUint64(1, 2, 3))
	until(t, func() bool { return y.r[1].n > got }, c, y.f[1])
}

// TestMailboxMovesWithRing: a connection that moves to another ring pair, or is suspended, and whose side is closed, loses
// no message.
func TestMailboxMovesWithRing(t *testing.T) {
	y := newRally(t)
	for round := range 4 {
		y.start()
		y.play(3, 1)
		e := y.e[0]
		if round%2 == 0 {
			l, ok := e.nextLayout()
			require.True(t, ok)
			e.proposePair(machine.EventMigrate, l)
		} else {
			e.Suspend()
		}
		y.play(50, 3)
	}
	require.True(t, y.e[0].tx.Offered() || !y.e[0].hasPending())
	got := y.r[1].n
	require.Equal(t, ucs.OK, y.e[0].AMUint64(5, 99, 0))
	y.e[0].Close()
	until(t, func() bool { return y.r[1].n == got+1 }, y.f[0], y.f[1])
	require.EqualValues(t, 99, y.r[1].header)
	y.e[1].Close()
	until(t, func() bool { return y.e[0].Life == conn.Released && y.e[1].Life == conn.Released }, y.f[0], y.f[1])
	require.Nil(t, y.f[0].mail.ep)
}
