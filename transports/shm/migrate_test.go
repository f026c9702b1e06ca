package shm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// flow sends numbers on e and checks, at the other iface, that they come once,
// in order and from one source.
type flow struct {
	t      *testing.T
	e      *ep
	next   uint64 // to be sent
	got    uint64
	source uint32
}

func (s *flow) send(n int) {
	p := make([]byte, 3000)
	for range n {
		size := int(s.next*7) % 100
		if s.next%5 == 0 {
			size = 1000 + int(s.next%2000)
		}
		if s.e.AMShort(1, s.next, p[:size]) != ucs.OK {
			return
		}
		s.next++
	}
}

func (s *flow) receive(d uct.Desc, _ []byte) {
	require.Equal(s.t, s.got, d.Header)
	if s.got > 0 {
		require.Equal(s.t, s.source, d.RxConn, "the source stays")
	}
	s.got, s.source = s.got+1, d.RxConn
}

// duplex is two ifaces with an endpoint to each other, both opened at once.
type duplex struct {
	a, b   *iface
	ab, ba flow
}

func newDuplex(t *testing.T, env ...string) *duplex {
	var ra, rb recorder
	d := &duplex{}
	d.a, d.b = openWith(t, &ra, env...), openWith(t, &rb, env...)
	d.ab, d.ba = flow{t: t, e: connectTest(t, d.a, d.b)}, flow{t: t, e: connectTest(t, d.b, d.a)}
	rb.onAM, ra.onAM = d.ab.receive, d.ba.receive
	return d
}

func (d *duplex) quiet() bool { return d.ab.got == d.ab.next && d.ba.got == d.ba.next }

// TestBothConnectAtOnce: one connection with one pair remains, nothing is lost,
// whatever was sent before either heard of the other.
func TestBothConnectAtOnce(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		before := countFDs(t)
		d := newDuplex(t)
		for range 200 {
			switch rnd.IntN(6) {
			case 0, 1:
				d.ab.send(rnd.IntN(40))
			case 2, 3:
				d.ba.send(rnd.IntN(40))
			case 4:
				d.a.Progress(64)
			case 5:
				d.b.Progress(64)
			}
		}
		settled := func() bool { return d.ab.e.M.Quiescent() && d.ba.e.M.Quiescent() && d.quiet() }
		until(t, settled, d.a, d.b)
		for _, f := range []*iface{d.a, d.b} {
			require.Equal(t, 1, f.Len(), "seed %d", seed)
			require.Equal(t, 1, f.mappedConns)
			require.Empty(t, f.connecting)
			require.Empty(t, f.merged)
			require.EqualValues(t, 1, f.ActiveEndpoints())
		}
		require.Len(t, d.ab.e.pairs, 1)
		require.Nil(t, d.ab.e.crossedSock)
		require.Nil(t, d.ba.e.crossedSock)
		if d.ab.e.pairs[0].id>>1 == 1 { // it has not grown since
			first := d.ab.e.M.WinsCrossing([16]byte{1}, d.ba.e.M.Conn())
			require.Equal(t, first, d.ab.e.pairs[0].id.IsLocal(), "the smaller one's initiation stands")
		}
		d.ab.e.Close()
		d.ba.e.Close()
		until(t, func() bool { return d.a.Len()+d.b.Len() == 0 }, d.a, d.b)
		require.NoError(t, d.a.Close())
		require.NoError(t, d.b.Close())
		require.Equal(t, before, countFDs(t), "descriptors")
	}
}

// TestBothConnectAndLeave: what either sent is delivered where the other closes
// its endpoint or its worker at any moment of the meeting.
func TestBothConnectAndLeave(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		before := countFDs(t)
		d := newDuplex(t)
		d.ab.send(rnd.IntN(20))
		d.ba.send(rnd.IntN(20))
		for range rnd.IntN(12) {
			[]*iface{d.a, d.b}[rnd.IntN(2)].Progress(64)
			if rnd.IntN(3) == 0 {
				d.ab.send(rnd.IntN(5))
			}
		}
		if rnd.IntN(2) == 0 {
			d.ab.e.Close()
		}
		if rnd.IntN(2) == 0 {
			require.NoError(t, d.a.Close())
		} else {
			d.ab.e.Close()
		}
		until(t, func() bool { return d.ab.got == d.ab.next }, d.a, d.b)
		d.ba.e.Close()
		until(t, func() bool { return (d.a.state == closed || d.a.Len() == 0) && d.b.Len() == 0 }, d.a, d.b)
		require.NoError(t, d.a.Close())
		require.NoError(t, d.b.Close())
		require.Equal(t, before, countFDs(t), "descriptors, seed %d", seed)
	}
}

// TestOneMoreConnectionStaysByItself beside one that crosses.
func TestOneMoreConnectionStaysByItself(t *testing.T) {
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		heard := map[uint32][]uint64{}
		var ra, rb recorder
		a, b := openTest(t, &ra), openTest(t, &rb)
		rb.onAM = func(d uct.Desc, _ []byte) { heard[d.RxConn] = append(heard[d.RxConn], d.Header) }
		es := []*ep{connectTest(t, a, b), connectTest(t, b, a), connectTest(t, a, b), connectTest(t, b, a), connectTest(t, a, b)}
		for i := range uint64(20) {
			for j, e := range es {
				require.Equal(t, ucs.OK, e.AMUint64(1, uint64(j)<<32|i, 0))
				[]*iface{a, b}[rnd.IntN(2)].Progress(64)
			}
		}
		until(t, func() bool { return rb.n == 60 && ra.n == 40 }, a, b)
		require.Len(t, heard, 3, "a source each")
		for _, hs := range heard {
			for i, h := range hs {
				require.Equal(t, hs[0]>>32<<32|uint64(i), h)
			}
		}
		require.LessOrEqual(t, a.Len(), 4, "the first two are one")
	}
}

// TestRingsGrow under load, up to the setting, and in the direction of either.
func TestRingsGrow(t *testing.T) {
	for _, c := range []struct {
		most string
		want int
	}{{"256k", 256 << 10}, {"10k", 10 << 10}, {"30k", 30 << 10}} {
		t.Run(c.most, func(t *testing.T) {
			d := newDuplex(t, "UCX_SHM_RING_MAX_SIZE="+c.most)
			limit := d.ab.e.maxBulk
			grown := func() bool {
				d.ab.send(1000)
				d.ba.send(10)
				p := d.ab.e.pair(d.ab.e.M.TxPair())
				return d.ab.next > 50_000 || p != nil && p.layout.Size() == c.want && c.want > 10<<10 && d.ab.next > 1000
			}
			until(t, grown, d.a, d.b)
			until(t, d.quiet, d.a, d.b)
			p := d.ab.e.pair(d.ab.e.M.TxPair())
			require.Equal(t, c.want, p.layout.Size())
			require.GreaterOrEqual(t, p.layout.MaxBulk(), limit, "the longest message still fits")
			require.Equal(t, ucs.OK, d.ba.e.AMShort(1, d.ba.next, make([]byte, limit)))
			d.ba.next++
			until(t, func() bool { return d.quiet() && len(d.ab.e.pairs) == 1 && len(d.ba.e.pairs) == 1 }, d.a, d.b)
		})
	}
}

// TestReservationOutlivesAMove: the ring that it lies in is left only after it.
func TestReservationOutlivesAMove(t *testing.T) {
	d := newDuplex(t)
	d.ab.send(1)
	until(t, func() bool { return d.ab.e.M.Quiescent() && d.ba.e.M.Quiescent() && d.quiet() }, d.a, d.b)
	b, s := d.ab.e.ReserveAM(1, d.ab.next, 2000)
	require.Equal(t, ucs.OK, s)
	out := d.ab.e.txPair
	d.ba.e.proposePair(machine.EventMigrate, d.b.layout)
	until(t, func() bool { return d.ab.e.M.TxPair() != out }, d.a, d.b)
	require.Equal(t, out, d.ab.e.txPair)
	for range 10 {
		d.a.Progress(64)
		d.b.Progress(64)
	}
	clear(b)
	d.ab.e.CommitAM(2000)
	d.ab.next++
	d.ab.send(10)
	until(t, func() bool { return d.quiet() && d.ab.e.M.Quiescent() && d.ba.e.M.Quiescent() }, d.a, d.b)
	require.NotEqual(t, out, d.ab.e.txPair)
	require.Len(t, d.ab.e.pairs, 1)
}

// TestWaitingOutlivesAMove: the pair that an endpoint moves to has room, but first for
// what waits.
func TestWaitingOutlivesAMove(t *testing.T) {
	var ra recorder
	d := newDuplex(t)
	d.a.handler = &ra
	d.ab.send(1)
	until(t, func() bool { return d.ab.e.M.Quiescent() && d.ba.e.M.Quiescent() && d.quiet() }, d.a, d.b)
	for d.ab.e.AMUint64(1, d.ab.next, 0) == ucs.OK {
		d.ab.next++
	}
	require.Equal(t, ucs.OK, d.ab.e.PendingAdd(1))
	ra.pending = func(ts []uct.Token) int {
		if d.ab.e.AMUint64(1, d.ab.next, 0) != ucs.OK {
			return 0
		}
		d.ab.next++
		return len(ts)
	}
	full := d.ab.e.M.TxPair()
	d.ba.e.proposePair(machine.EventMigrate, d.b.layout)
	d.ab.e.readSocket() // as in the middle of Progress
	require.NotEqual(t, full, d.ab.e.M.TxPair())
	require.Equal(t, ucs.NoResource, d.ab.e.AMUint64(1, d.ab.next+1, 0), "it would overtake")
	until(t, func() bool { return d.ab.e.pend.Len() == 0 && d.quiet() }, d.a, d.b)
	d.ab.e.Close()
	d.ba.e.Close()
}

// nap has d's connection put to sleep by a.
func (d *duplex) nap(t *testing.T) {
	until(t, func() bool { return d.ab.e.M.Quiescent() && d.ba.e.M.Quiescent() && d.quiet() }, d.a, d.b)
	d.ab.e.step(machine.Event{Kind: machine.EventSuspend})
	until(t, func() bool { return len(d.ab.e.pairs)+len(d.ba.e.pairs) == 0 }, d.a, d.b)
}

// TestSleepingConnectionWakes on the next send of either side, or both at once.
func TestSleepingConnectionWakes(t *testing.T) {
	d := newDuplex(t)
	d.ab.send(1)
	d.ba.send(1)
	rnd := rand.New(rand.NewPCG(1, 6))
	for round := range 200 {
		d.nap(t)
		require.Equal(t, 0, d.a.mappedConns+d.b.mappedConns)
		want := [2]uint64{d.ab.next + uint64(rnd.IntN(3)), d.ba.next + uint64(rnd.IntN(3))}
		until(t, func() bool {
			d.ab.send(int(want[0] - d.ab.next))
			d.ba.send(int(want[1] - d.ba.next))
			return d.ab.next == want[0] && d.ba.next == want[1] && d.quiet()
		}, d.a, d.b)
		if want == [2]uint64{d.ab.next, d.ba.next} && round%10 == 0 {
			until(t, func() bool { d.ab.send(1); return len(d.ab.e.pairs) > 0 }, d.a, d.b)
		}
		if len(d.ab.e.pairs) == 0 { // nobody had anything to say
			until(t, func() bool { d.ba.send(1); return d.ba.e.txPair != machine.None }, d.a, d.b)
		}
	}
}

// TestSleepingConnectionIsClosed by either side, and found dead.
func TestSleepingConnectionIsClosed(t *testing.T) {
	for name, end := range map[string]func(d *duplex){
		"endpoint":     func(d *duplex) { d.ab.e.Close() },
		"other":        func(d *duplex) { d.ba.e.Close() },
		"worker":       func(d *duplex) { require.NoError(t, d.a.Close()) },
		"crash":        func(d *duplex) { require.NoError(t, d.ab.e.sock.Close()); d.a.FailLater(d.ab.e, errPeerCrashed) },
		"while waking": func(d *duplex) { d.ab.send(1); d.ab.e.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDuplex(t)
			d.ab.send(1)
			d.nap(t)
			end(d)
			until(t, func() bool {
				d.ba.send(1)
				return d.ba.e.status != ucs.OK || d.ba.got > 0
			}, d.a, d.b)
			d.ab.e.Close()
			d.ba.e.Close()
			until(t, func() bool { return (d.a.state == closed || d.a.Len() == 0) && d.b.Len() == 0 }, d.a, d.b)
		})
	}
}

// TestIdleConnectionsSleep where more have memory than may: the busy ones keep
// theirs, and all work.
func TestIdleConnectionsSleep(t *testing.T) {
	const n, most = 40, 10
	var rb recorder
	var as []*iface
	var es []*ep
	b := openWith(t, &rb, fmt.Sprintf("UCX_SHM_MAX_PAIRS=%d", most))
	got := map[uint64]int{}
	rb.onAM = func(d uct.Desc, _ []byte) { got[d.Header]++ }
	all := []*iface{b}
	for i := range n {
		a := openTest(t, new(recorder))
		as, es = append(as, a), append(es, connectTest(t, a, b))
		require.Equal(t, ucs.OK, es[i].AMUint64(1, uint64(i), 0))
	}
	all = append(all, as...)
	until(t, func() bool { es[0].AMUint64(1, 0, 0); return rb.n >= n && b.mappedConns <= most }, all...)
	require.NotEmpty(t, es[0].pairs, "who is busy keeps its memory")
	clear(got)
	for i, e := range es[1:] {
		until(t, func() bool { return e.AMUint64(1, uint64(i+1), 0) == ucs.OK }, as[i+1], b)
	}
	until(t, func() bool { return len(got) >= n-1+min(got[0], 1) }, all...)
	for i := range uint64(n - 1) {
		require.Equal(t, 1, got[i+1])
	}
	until(t, func() bool { return b.mappedConns <= most }, all...)
}

// TestSleeperWaitsForAWakingPeer without polling: the answer to an offer comes by
// the socket, however long it takes.
func TestSleeperWaitsForAWakingPeer(t *testing.T) {
	var ra recorder
	d := newDuplex(t)
	d.a.handler = &ra
	d.ab.send(1)
	d.nap(t)
	require.Equal(t, ucs.NoResource, d.ab.e.AMUint64(1, d.ab.next, 0))
	require.Equal(t, ucs.OK, d.ab.e.PendingAdd(1))
	sent := false
	ra.pending = func(ts []uct.Token) int {
		sent = d.ab.e.AMUint64(1, d.ab.next, 0) == ucs.OK
		return map[bool]int{true: len(ts)}[sent]
	}
	arm(t, d.a)
	require.True(t, d.ab.e.M.Migrating())
	require.False(t, readable(t, d.a, 0))
	until(t, func() bool { return len(d.ba.e.pairs) > 0 }, d.b)
	require.True(t, readable(t, d.a, patience), "the answer wakes it")
	until(t, func() bool { return sent }, d.a, d.b)
	d.ab.next++
	until(t, d.quiet, d.a, d.b)
}
