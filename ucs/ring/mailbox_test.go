package ring

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// twoWay is two rings with one mailbox: side k produces in ring k.
type twoWay struct {
	p [2]*Producer
	c [2]*Consumer // of the ring that the other side produces
}

func newTwoWay(t testing.TB, l Layout) twoWay {
	p0, c1, first := newPair(t, l)
	p1, c0, _ := newPair(t, l)
	p1.ShareMailbox(first)
	c0.ShareMailbox(first)
	return twoWay{[2]*Producer{p0, p1}, [2]*Consumer{c0, c1}}
}

// sendMail sends in the mailbox if side k may, else in the ring.
func (w twoWay) send(t testing.TB, k int, hdr uint64) (mail bool) {
	p := w.p[k]
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], ^hdr)
	if p.Offered() && p.TakeOffer() {
		p.Mail().SetHeader(hdr)
		p.Mail().SetPayload(b[:])
		p.PublishMail(3, len(b), w.c[k].Consumed())
		return true
	}
	require.True(t, send(p, 3, hdr, b[:]))
	return false
}

// receive takes the next message of side k, from wherever it is, and offers the mailbox.
func (w twoWay) receive(t testing.TB, k int) (hdr uint64, mail, ok bool) {
	c := w.c[k]
	if first, more := c.PollMail(); more {
		require.False(t, c.Ready(), "a message in both places")
		var b [MailMax]byte
		hdr, n, good := c.TakeMail(first, &b)
		require.True(t, good)
		require.EqualValues(t, 8, n)
		require.Equal(t, ^hdr, binary.NativeEndian.Uint64(b[:]))
		if w.p[k].Acknowledge(first) {
			w.p[k].OfferMail()
		}
		c.Release()
		return hdr, true, true
	}
	if _, more := c.Poll(); !more {
		return 0, false, false
	}
	hdr = c.Header()
	c.Advance()
	c.Release()
	w.p[k].OfferMail()
	return hdr, false, true
}

// TestMailboxAlternates: once both sides poll the mailbox, messages that alternate all go through it, for many times the
// cells of the rings.
func TestMailboxAlternates(t *testing.T) {
	w := newTwoWay(t, Fit(4<<10, 8))
	for k := range 2 {
		w.c[k].SetMailPolled(true)
	}
	for i := range uint64(1000) {
		for k := range 2 {
			mail := w.send(t, k, i)
			require.Equal(t, i > 0 || k > 0, mail, "message %d of side %d", i, k)
			hdr, got, ok := w.receive(t, 1-k)
			require.True(t, ok)
			require.Equal(t, mail, got)
			require.Equal(t, i, hdr)
		}
	}
}

// TestMailboxKeepsOrder: sides send and receive as they like. Every message is received once and in order, and both
// places are used.
func TestMailboxKeepsOrder(t *testing.T) {
	w := newTwoWay(t, Fit(4<<10, 8))
	rnd := rand.New(rand.NewPCG(7, 1))
	var sent, got [2]uint64
	var mails, rings int
	for range 200_000 {
		k := rnd.IntN(2)
		switch rnd.IntN(20) {
		case 0:
			w.c[k].SetMailPolled(rnd.IntN(2) == 0)
		default:
			if rnd.IntN(2) == 0 && sent[k]-got[k] < 4 {
				w.send(t, k, sent[k])
				sent[k]++
				continue
			}
			hdr, mail, ok := w.receive(t, 1-k)
			if !ok {
				require.Equal(t, sent[k], got[k], "a message is missing")
				continue
			}
			require.Equal(t, got[k], hdr)
			got[k]++
			if mail {
				mails++
			} else {
				rings++
			}
		}
	}
	require.Greater(t, mails, 1000)
	require.Greater(t, rings, 1000)
}

// TestMailboxNotOverwritten: a second message does not go to the mailbox before the first was taken.
func TestMailboxNotOverwritten(t *testing.T) {
	w := newTwoWay(t, testLayout)
	w.c[1].SetMailPolled(true)
	p := w.p[0]
	p.OfferMail()
	require.False(t, p.Room(), "the next message is to be offered")
	require.True(t, w.send(t, 0, 0))
	require.True(t, p.Room())
	p.OfferMail()
	require.False(t, p.Offered(), "the message is not taken yet")
	require.False(t, w.send(t, 0, 1))

	_, mail, ok := w.receive(t, 1)
	require.True(t, ok && mail)
	_, mail, ok = w.receive(t, 1)
	require.True(t, ok && !mail)
	p.OfferMail()
	require.False(t, p.Offered(), "taken, but not acknowledged")
	w.c[0].SetMailPolled(true)
	require.True(t, w.send(t, 1, 0), "the offer of the message in the ring")
	_, mail, ok = w.receive(t, 0)
	require.True(t, ok && mail)
	require.True(t, p.Offered(), "the message acknowledged both")
}

// TestMailboxOfferExpires: an offer ends with a block, with a message that was sent in the ring, and where the consumer does
// not poll the mailbox.
func TestMailboxOfferExpires(t *testing.T) {
	w := newTwoWay(t, testLayout)
	p := w.p[0]
	p.OfferMail()
	require.False(t, p.TakeOffer(), "the consumer does not poll it")
	require.True(t, p.Room())

	w.c[1].SetMailPolled(true)
	p.OfferMail()
	p.Block()
	require.False(t, p.TakeOffer())
	require.False(t, p.Room())
	p.OfferMail()
	require.False(t, p.Offered(), "blocked")
	p.Unblock()
	require.True(t, p.Refresh() && p.Room())

	p.OfferMail()
	require.True(t, p.Refresh() && send(p, 1, 0, nil), "room was found meanwhile")
	require.False(t, p.TakeOffer())
}

// TestMailboxGarbage: no word in the mailbox makes the consumer read more than the mailbox, and no
// acknowledgement has the producer accept what its ring could not hold.
func TestMailboxGarbage(t *testing.T) {
	w := newTwoWay(t, testLayout)
	rnd := rand.New(rand.NewPCG(7, 2))
	var b [MailMax]byte
	for range 10_000 {
		first := rnd.Uint64()
		_, n, ok := w.c[1].TakeMail(first, &b)
		require.Equal(t, first>>lenShift&lenMask <= MailMax, ok)
		require.True(t, n <= MailMax || !ok)
		if p := w.p[1]; p.Acknowledge(first) {
			require.EqualValues(t, p.Head()-1, first>>ackShift)
		}
		require.True(t, w.p[1].Refresh())
	}
}

// TestMailboxOfOldNumbers: a number is not left in the mailbox or in a skipped cell until numbers wrap around to it.
func TestMailboxOfOldNumbers(t *testing.T) {
	w := newTwoWay(t, Fit(4<<10, 8))
	p, c := w.p[0], w.c[1]
	skip := func(n uint64) { // as after n more messages in the ring
		p.head, c.want = p.head+n, c.want+n
		c.at = c.want * CellSize & c.atMask
		c.publish()
		require.True(t, p.Refresh())
	}
	c.SetMailPolled(true)
	w.c[0].SetMailPolled(true)
	p.OfferMail()
	require.True(t, w.send(t, 0, 0))
	w.receive(t, 1)
	skip(staleAfter - 10)
	require.EqualValues(t, 1, c.mail.First()&seqMask)
	skip(10)
	require.EqualValues(t, (c.want+neverMatches)&seqMask, c.mail.First()&seqMask)

	skip(staleAfter - c.want&(staleAfter-1) - 4)
	for i := range uint64(20) { // over the multiple of staleAfter
		require.True(t, w.send(t, 1, i))
		w.receive(t, 0)
		require.True(t, w.send(t, 0, i))
		w.receive(t, 1)
	}
	for i := range uint64(8) {
		seq := c.cells.offset(i*CellSize).First() & seqMask
		require.Greater(t, (seq-c.want)&seqMask, uint64(neverMatches)-100, "cell %d has number %d, next is %d", i, seq, c.want)
	}
}
