package arq

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// loop is a flow whose packets arrive as they are sent.
type loop struct {
	s    *Sender
	r    *Receiver
	now  ucs.Time
	free []uint32
	conf Config
}

func newLoop() *loop {
	l := &loop{conf: Default, now: ucs.Time(time.Second)}
	l.s = NewSender(&l.conf, ^Seq(0)-100) // wraps around soon
	l.s.Start(l.now)
	l.s.Tick(l.now)
	l.r = NewReceiver(&l.conf, ^Seq(0)-100, l.now)
	l.s.HandleAccept(1, MaxWindow, l.now)
	return l
}

// message goes there, and its acknowledgement back where one is due.
func (l *loop) message() {
	l.now++
	if !l.s.CanPush() {
		panic("no room")
	}
	l.s.Push(7)
	for l.s.Sendable() {
		_, a := l.s.Transmit(l.now)
		h := Header{A: a}
		l.r.Arrive(h.Seq(), 7, h.AckReq(), true, l.now)
	}
	if l.r.AckUrgent() {
		l.ack()
	}
}

func (l *loop) ack() {
	h := Header{B: l.r.AckWord(MaxWindow)}
	l.free = l.s.HandleAck(h.Ack(), h.Window(), nil, l.now, l.free[:0])
}

// BenchmarkFlow is what a message costs at both ends.
func BenchmarkFlow(b *testing.B) {
	b.Run("stream", func(b *testing.B) {
		l := newLoop()
		b.ReportAllocs()
		for b.Loop() {
			l.message()
		}
	})
	b.Run("ping-pong", func(b *testing.B) { // each acknowledged by what comes back
		l := newLoop()
		b.ReportAllocs()
		for b.Loop() {
			l.message()
			l.ack()
		}
	})
}

func TestGateFlowAllocs(t *testing.T) {
	l := newLoop()
	for range 2000 {
		l.message()
	}
	assert.Zero(t, testing.AllocsPerRun(2000, l.message))
}

// TestFewAcks: a stream is acknowledged every so many packets, and that suffices.
func TestFewAcks(t *testing.T) {
	l := newLoop()
	acks := 0
	for range 10_000 {
		l.message()
		if l.r.unacked == 0 {
			acks++
		}
	}
	assert.Less(t, acks, 10_000/12)
	assert.EqualValues(t, MaxWindow, l.s.cwnd)
}

// TestSingleHole: what three later packets have overtaken goes again at once, and
// once; the window is halved once.
func TestSingleHole(t *testing.T) {
	l := newLoop()
	for range 500 {
		l.message()
	}
	l.ack()
	was := l.s.cwnd
	first := l.s.next
	var again []Seq
	for i := range 20 {
		l.now++
		l.s.Push(uint32(i))
		for l.s.Sendable() {
			_, a := l.s.Transmit(l.now)
			h := Header{A: a}
			if h.Seq().Diff(first+Seq(i)) < 0 {
				again = append(again, h.Seq())
			}
			if h.Seq() == first+3 && len(again) == 0 {
				continue // lost
			}
			if l.r.Arrive(h.Seq(), 7, h.AckReq(), true, l.now) == Deliver {
				for _, ok := l.r.Pop(); ok; _, ok = l.r.Pop() {
				}
			}
			sel, _ := l.r.Selective()
			ack := AckHeader(l.r, MaxWindow, &sel)
			l.s.HandleAck(ack.Ack(), ack.Window(), &sel, l.now, nil)
		}
	}
	require.Equal(t, []Seq{first + 3}, again)
	require.Equal(t, was-was/2, l.s.ssthresh)
	require.True(t, l.s.Idle())
	require.Zero(t, l.s.inFlight)
	require.Zero(t, l.s.numLost)
}

// TestTimeouts follows RFC 6298: from round trips of those sent once, doubled with
// each time-out, within bounds.
func TestTimeouts(t *testing.T) {
	l := newLoop()
	rtt := 2 * time.Millisecond
	for range 200 {
		l.s.Push(1)
		_, a := l.s.Transmit(l.now)
		h := Header{A: a}
		l.r.Arrive(h.Seq(), 1, false, true, l.now)
		l.now = l.now.Add(rtt)
		l.ack()
	}
	assert.InDelta(t, rtt, l.s.srtt, float64(rtt/20))
	assert.Less(t, l.s.rttvar, rtt/10)
	l.s.Push(1)
	l.s.Transmit(l.now)
	gaps := []time.Duration{}
	for range 12 {
		was := l.now
		l.now = l.s.Deadline()
		gaps = append(gaps, l.now.Sub(was))
		require.Equal(t, ResendOldest, l.s.Tick(l.now))
		l.s.RetransmitOldest(l.now)
	}
	assert.GreaterOrEqual(t, gaps[0], l.conf.MinRTO)
	for i := 2; i < 8; i++ {
		assert.InDelta(t, 2, float64(gaps[i])/float64(gaps[i-1]), 0.6, "%v", gaps)
	}
	assert.LessOrEqual(t, gaps[11], l.conf.MaxRTO*5/4)
	srtt := l.s.srtt
	l.now = l.now.Add(time.Second)
	l.r.Arrive(l.r.next, 1, false, true, l.now)
	l.ack()
	assert.Equal(t, srtt, l.s.srtt, "of a packet that went more than once (Karn)")
}

// TestBogusAcks: what cannot be changes nothing.
func TestBogusAcks(t *testing.T) {
	l := newLoop()
	for range 10 {
		l.s.Push(1)
		l.s.Transmit(l.now)
	}
	was := *l.s
	all := Selective{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	for _, ack := range []Seq{l.s.una - 1, l.s.nextTx + 1, l.s.una + 1<<31, l.s.una - 1<<30} {
		assert.Empty(t, l.s.HandleAck(ack, 255, &all, l.now, nil))
		assert.Equal(t, was, *l.s)
	}
	free := l.s.HandleAck(l.s.una, 255, &all, l.now, nil)
	assert.Len(t, free, 9, "of what was sent")
	l.s.HandleReset(l.s.una - 1)
	l.s.HandleReset(l.s.next + 1)
	assert.Equal(t, Open, l.s.State())
}
