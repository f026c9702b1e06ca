package soft

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
)

// TestShortWay: what one random script comes to does not depend on whether short
// sends go the short way.
func TestShortWay(t *testing.T) { testShortWay(t, Config{Link: LinkInproc}) }

// TestShortWayUDP is the same for the short way over UDP.
func TestShortWayUDP(t *testing.T) { testShortWay(t, Config{Link: LinkUDP, Addr: localhost}) }

func testShortWay(t *testing.T, c Config) {
	c.Engine = EngineInline
	failed := 0
	for seed := range uint64(80) {
		short, long := newShortScript(t, seed, c, true), newShortScript(t, seed, c, false)
		for step := range 250 {
			short.step()
			long.step()
			require.Equal(t, long.ended, short.ended, "seed %d, step %d", seed, step)
			require.Equal(t, long.events, short.events, "seed %d, step %d", seed, step)
		}
		for range 3 { // what was held back goes
			short.rest()
			long.rest()
		}
		require.Equal(t, long.ended, short.ended, "seed %d", seed)
		require.Equal(t, long.accounts(), short.accounts(), "seed %d", seed)
		for i := range short.ends {
			require.Equal(t, long.ends[i].buf, short.ends[i].buf, "seed %d", seed)
			require.Equal(t, long.ends[i].qp.(*qp).sq.counts, short.ends[i].qp.(*qp).sq.counts, "seed %d", seed)
			if short.ends[i].qp.(*qp).loadState() != verbs.StateRTS {
				failed++
			}
		}
	}
	assert.NotZero(t, failed, "no script ended in an error")
	assert.Less(t, failed, 80, "too many did")
}

// shortScript is a random script between two ends. The time is the test's.
type shortScript struct {
	script
	ends   [2]*end
	rnd    *rand.Rand
	ended  [2][]verbs.WC
	events [2]int // of the ends' completion queues
	id     uint64
	// writes is how many messages there are to a write, on average.
	writes int
}

// newSRQ is a shared receive queue for q alone.
func newSRQ(q *qp, most int) *srq {
	s := &srq{d: q.d, pd: q.pd}
	s.init(most, true)
	s.shared = true
	return s
}

func newShortScript(t *testing.T, seed uint64, c Config, short bool) *shortScript {
	shared := seed%3 == 0
	s := &shortScript{rnd: rand.New(rand.NewPCG(seed, 11)), writes: 24}
	c.Depth, c.Window = minDepth<<s.rnd.IntN(3), 1+s.rnd.IntN(20)
	s.script = *newScript(t, New(c))
	s.ends = [2]*end{s.a, s.b}
	for _, e := range s.ends {
		q := e.qp.(*qp)
		if c.Link == LinkUDP {
			require.Equal(t, 64, q.fastUDPMax)
			require.Equal(t, 64, q.fastInline)
			s.writes = 2
		} else {
			require.Equal(t, smallLen, q.fastMax)
		}
		if shared {
			q.srq = newSRQ(q, 256)
		}
		if !short {
			q.fastMax, q.fastUDPMax, q.fastInline = -1, -1, -1
		}
		for i := range e.buf {
			e.buf[i] = byte(i * 7)
		}
	}
	return s
}

// step does one thing at one end.
func (s *shortScript) step() {
	r := s.rnd
	e, o := s.ends[0], s.ends[1]
	if r.IntN(2) == 0 {
		e, o = o, e
	}
	switch k := r.IntN(20); {
	case k < 6:
		s.post(e, o)
	case k < 12:
		s.receive(e, r.IntN(4))
	case k < 17:
		s.pass()
	case k < 18:
		require.Equal(s.t, ucs.OK, e.cq.Arm(r.IntN(3) > 0))
	default:
		s.tick(time.Duration(r.IntN(40)) * time.Microsecond)
	}
	for i, e := range s.ends {
		for _, w := range e.got {
			w.QPN = 0 // random
			s.ended[i] = append(s.ended[i], w)
		}
		e.got = e.got[:0]
		s.events[i] += len(events(e.ch.(*compChannel)))
	}
}

// rest lets everything end that can.
func (s *shortScript) rest() {
	for range 300 {
		s.pass()
		s.tick(100 * time.Microsecond)
	}
	s.step()
}

// receive posts n receives: most of one piece that is long enough.
func (s *shortScript) receive(e *end, n int) {
	wrs := make([]verbs.RecvWR, n)
	for i := range wrs {
		s.id++
		size := 64 + s.rnd.IntN(64)
		wrs[i] = verbs.RecvWR{ID: s.id, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{e.sge(1000+s.rnd.IntN(1000), size)}}
		switch s.rnd.IntN(300) {
		case 0:
			wrs[i].SG[0].Len = 5
		case 1:
			wrs[i].SG[0].LKey++
		case 2, 3, 4, 5, 6, 7, 8, 9:
			wrs[i].NumSG, wrs[i].SG[1] = 2, e.sge(2200, 64)
		}
	}
	if q := e.qp.(*qp); q.srq != nil {
		q.srq.PostRecv(wrs)
		if s.rnd.IntN(2) == 0 {
			require.Equal(s.t, ucs.OK, q.srq.SetLimit(s.rnd.IntN(6)))
		}
		return
	}
	e.qp.PostRecv(wrs)
}

// post sends a list of short messages, most inline, and now and then something
// else.
func (s *shortScript) post(e, o *end) {
	r := s.rnd
	wrs := make([]verbs.SendWR, 1+max(0, r.IntN(6)-3))
	for i := range wrs {
		s.id++
		w := verbs.SendWR{
			ID: s.id, Op: verbs.OpSend, Flags: verbs.SendInline | verbs.SendFlags(r.IntN(2))*verbs.SendSignaled,
			InlineLen: uint8(r.IntN(34)), Imm: r.Uint32(), Remote: o.mr.Addr() + 3000 + uint64(r.IntN(1000))&^7, RKey: o.mr.RKey(),
		}
		if r.IntN(8) == 0 {
			w.Flags |= verbs.SendSolicited
		}
		if r.IntN(s.writes) == 0 {
			w.Op = verbs.OpWrite
		}
		for j := range w.InlineLen {
			w.Inline[j] = byte(r.Uint32())
		}
		s.vary(e, &w)
		wrs[i] = w
	}
	e.qp.PostSend(wrs)
}

// vary makes something else of some messages.
func (s *shortScript) vary(e *end, w *verbs.SendWR) {
	switch s.rnd.IntN(24) {
	case 0:
		w.Op = verbs.OpSendImm
	case 1:
		w.InlineLen = 64
	case 2:
		w.Op = verbs.OpWriteImm
	case 3:
		w.Flags |= verbs.SendFence
	case 4:
		w.InlineLen = uint8(33 + s.rnd.IntN(40)) // too long for a cell, or for a work request
	case 5:
		w.Flags &^= verbs.SendInline
		w.NumSG, w.SG[0] = 1, e.sge(s.rnd.IntN(500), s.rnd.IntN(80))
	case 6:
		w.Op, w.Flags = verbs.OpRead, w.Flags&^verbs.SendInline
		w.NumSG, w.SG[0] = 1, e.sge(5000, s.rnd.IntN(9000))
	case 8:
		if s.rnd.IntN(12) == 0 {
			w.RKey++
		}
	case 7:
		w.Op, w.Flags, w.Swap = verbs.OpFetchAdd, w.Flags&^verbs.SendInline, 3
		w.NumSG, w.SG[0] = 1, e.sge(16, 8)
	}
}

// TestInboxGrows: an inbox takes no more memory than what comes needs; what comes
// stays in order; it is full at its depth.
func TestInboxGrows(t *testing.T) {
	var b inbox
	b.init(64)
	take := func() (psn verbs.PSN, ok bool) {
		g := b.readRing.Load()
		h := g.head.Load()
		if g.at(h).seq.Load() != h+1 {
			if g = b.nextRing(g, h); g == nil {
				return 0, false
			}
			h = 0
		}
		psn = g.at(h).psn
		cpu.StoreRelease32(&g.head, h+1)
		return psn, true
	}
	put := func(psn verbs.PSN) {
		require.False(t, b.full())
		c, seq := b.claim()
		require.NotNil(t, c)
		c.psn = psn
		cpu.StoreRelease32(&c.seq, seq)
	}
	var sent, came verbs.PSN
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, most := range []int{5, 8, 20, 60} {
		for range 1000 {
			for range rnd.IntN(most - int(sent-came) + 1) {
				put(sent)
				sent++
			}
			for range rnd.IntN(int(sent-came) + 1) {
				require.True(t, b.ready())
				psn, ok := take()
				require.True(t, ok)
				require.Equal(t, came, psn)
				came++
			}
		}
		for came != sent {
			psn, ok := take()
			require.True(t, ok)
			require.Equal(t, came, psn)
			came++
		}
		_, ok := take()
		require.False(t, ok)
		g := b.readRing.Load()
		require.Equal(t, uint32(came), g.base+g.head.Load())
		require.Less(t, len(b.writeRing.Load().cells), 2*max(most, minInbox))
	}
	for !b.full() {
		c, seq := b.claim()
		require.NotNil(t, c)
		cpu.StoreRelease32(&c.seq, seq)
	}
	c, _ := b.claim()
	require.Nil(t, c)
	require.Len(t, b.writeRing.Load().cells, 64)
}
