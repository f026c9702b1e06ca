package shm

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// scribble is a connection of two ifaces that moves from pair to pair while
// somebody writes into all that they share at that moment.
type scribble struct {
	t      *testing.T
	rnd    *rand.Rand
	a, b   *iface
	ab, ba *ep
	buf    []byte
}

// strike writes into the pairs that are mapped now: into the head of the newest,
// into a marker, or anywhere.
func (s *scribble) strike() {
	e := []*ep{s.ab, s.ba}[s.rnd.IntN(2)]
	if len(e.pairs) == 0 {
		return
	}
	p := e.pairs[len(e.pairs)-1]
	m := p.seg.Bytes()
	ring := m[s.rnd.IntN(2)*ringStride(p.layout):]
	v := vandal{rnd: s.rnd, pages: [][]byte{m, ring, s.a.pages[0].seg.Bytes(), s.b.pages[0].seg.Bytes()}}
	switch s.rnd.IntN(4) {
	case 0:
		binary.NativeEndian.PutUint64(ring[8*s.rnd.IntN(2):], v.word())
	case 1: // any connection's pair, the end, or none
		in := m[ringStride(p.layout):]
		if !p.id.IsLocal() {
			in = m[:ringStride(p.layout)]
		}
		next := []uint64{0, 1<<32 - 1, v.word()}[s.rnd.IntN(3)]
		if e.rxPair == p.id && !e.rx.Ready() {
			at := in[len(in)-len(e.rx.Data()):][e.rx.Consumed()%uint64(p.layout.Cells)*64:]
			binary.NativeEndian.PutUint64(at[8:], next)
			binary.NativeEndian.PutUint64(at, e.rx.Consumed()+1|1<<57)
		}
	default:
		v.strike()
	}
}

// offer says by the socket that there is another pair, or one that there was.
func (s *scribble) offer() {
	e := []*ep{s.ab, s.ba}[s.rnd.IntN(2)]
	if e.sock == nil {
		return
	}
	p, err := makePair(e.f.layout)
	require.NoError(s.t, err)
	h := e.f.newConnMsg(kindMigrate, e.Slot())
	h.setMachineMsg(machine.Msg{
		Pair: machine.PairID(s.rnd.IntN(12)), Old: machine.PairID(s.rnd.IntN(8)), From: e.M.Conn(), To: e.M.Remote(),
		Resume: s.rnd.IntN(2) == 0,
	})
	h.setLayout(p.layout)
	_ = e.sock.Send(h.append(nil), p.seg.FD()) // it may have been hung up on
	require.NoError(s.t, p.seg.Close())
}

// act does one thing that uses or moves the connection.
func (s *scribble) act() {
	e := []*ep{s.ab, s.ba}[s.rnd.IntN(2)]
	switch s.rnd.IntN(10) {
	case 0, 1:
		e.AMShort(1, 0, s.buf[:s.rnd.IntN(len(s.buf))])
	case 2:
		if b, st := e.ReserveAM(1, 0, 1+s.rnd.IntN(len(s.buf)-1)); st == ucs.OK {
			s.move(e)
			e.f.Progress(64)
			clear(b)
			e.CommitAM(s.rnd.IntN(len(b)))
		}
	case 3:
		e.PendingAdd(1)
	case 4:
		e.f.Arm(uct.EventRecv | uct.EventSend)
	case 5, 6:
		s.move(e)
	default:
		e.f.requestService()
		e.f.Progress(64)
	}
}

// move has the connection grow, sleep or wake, where its machine is for it.
func (s *scribble) move(e *ep) {
	switch {
	case e.status != ucs.OK || e.Life.Over():
	case e.M.TxPair() == machine.None && e.M.State() == machine.StateOpen && !e.M.Migrating():
		e.proposePair(machine.EventResume, e.f.layout)
	case e.M.Quiescent() && s.rnd.IntN(2) == 0:
		e.step(machine.Event{Kind: machine.EventSuspend})
	case e.M.CanMigrate():
		if l, ok := e.nextLayout(); ok {
			e.proposePair(machine.EventMigrate, l)
		}
	}
}

// TestAnyPairMayChange: whatever a peer writes into the pairs of a connection that
// grows, sleeps, wakes and ends, no access goes to one that was unmapped, and all
// of it is given back.
func TestAnyPairMayChange(t *testing.T) {
	seeds := uint64(1500)
	if testing.Short() {
		seeds = 100
	}
	a := openWith(t, &picky{t: t}, "UCX_SHM_RING_CELLS=8", "UCX_SHM_RING_SIZE=4k")
	b := openWith(t, &picky{t: t}, "UCX_SHM_RING_CELLS=8", "UCX_SHM_RING_SIZE=4k")
	for seed := range seeds {
		s := &scribble{t: t, rnd: rand.New(rand.NewPCG(seed, 8)), a: a, b: b, buf: make([]byte, a.attr.AM.Short)}
		s.ab = connectTest(t, a, b)
		require.Equal(t, ucs.OK, s.ab.AMShort(1, 0, nil))
		until(t, func() bool { return s.ab.M.State() == machine.StateOpen }, a, b)
		s.ba = connectTest(t, b, a)
		for range 20 + s.rnd.IntN(200) {
			s.act()
			if s.rnd.IntN(10) == 0 {
				s.strike()
			}
			if s.rnd.IntN(20) == 0 {
				s.offer()
			}
			for _, e := range []*ep{s.ab, s.ba} { // as anybody may at any time
				e.tx.SetWaiting(false)
				e.rx.Ready()
			}
		}
		for _, e := range []*ep{s.ab, s.ba} {
			e.PendingPurge(func(uct.Token) {})
			e.Close()
			a.FailLater(s.ab, fmt.Errorf("the end: %w", ucs.ErrPeerFailed))
		}
		until(t, func() bool { return a.Len() == 0 && b.Len() == 0 }, a, b)
		require.Zero(t, a.mappedConns+b.mappedConns, "seed %d", seed)
		require.Equal(t, a.nullPair.tx, s.ab.tx, "seed %d: sends where nothing is", seed)
		require.Equal(t, b.nullPair.rx, s.ba.rx)
	}
	moved := a.stats.Value(statMigrated) + b.stats.Value(statMigrated)
	require.Positive(t, moved)
	t.Logf("%d moves", moved)
}
