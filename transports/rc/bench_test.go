package rc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// bench is two ends in one goroutine, connected.
type bench struct {
	testing.TB
	a, b *end
	ep   *ep
	back *ep
	mem  uct.Mem // of b
	own  uct.Mem // of a
	addr uint64
	key  uct.RKey
	n    int
}

func newBench(t testing.TB) *bench {
	c := Component(inproc())
	s := &bench{TB: t, a: newEnd(t, c, 1), b: newEnd(t, c, 2)}
	to, err := s.a.NewEndpoint(s.b.address())
	require.NoError(t, err)
	until(t, func() bool { return to.AMUint64(1, 2, 3) == ucs.OK }, s.a, s.b)
	until(t, func() bool { return len(s.b.got) == 1 }, s.a, s.b)
	back, err := s.b.NewEndpoint(s.a.address())
	require.NoError(t, err)
	s.ep, s.back = to.(*ep), back.(*ep)
	until(t, func() bool { return s.b.sees(func() bool { return s.back.txQueue != nil }) }, s.a, s.b)
	s.mem, err = s.b.d.Allocate(1<<20, uct.MemRemote)
	require.NoError(t, err)
	s.own, err = s.a.d.Allocate(1<<20, 0)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.mem.Close())
		require.NoError(t, s.own.Close())
	})
	s.key, err = s.a.d.UnpackKey(s.mem.AppendKey(nil))
	require.NoError(t, err)
	s.addr = nic.AddressOf(s.mem.Bytes())
	s.b.reply = func(*uct.Desc) { s.n++ }
	s.a.reply = s.b.reply
	return s
}

// run repeats op, with progress where it finds no resource.
func (s *bench) run(b *testing.B, op func() uct.Status) {
	b.ReportAllocs()
	for b.Loop() {
		for st := op(); st != ucs.OK && st != ucs.InProgress; st = op() {
			if st != ucs.NoResource {
				b.Fatal(st)
			}
			s.a.Progress(64)
			for s.b.Progress(64) > 0 { // else it runs out of receives, and pauses
			}
		}
	}
}

func BenchmarkAMShort(b *testing.B) {
	s := newBench(b)
	p := make([]byte, 8)
	s.run(b, func() uct.Status { return s.ep.AMShort(1, 2, p) })
}

func BenchmarkAMBcopy(b *testing.B) {
	s := newBench(b)
	s.run(b, func() uct.Status {
		_, st := s.ep.ReserveAM(1, 2, 1024)
		if st == ucs.OK {
			s.ep.CommitAM(1024)
		}
		return st
	})
}

func BenchmarkAMZcopy(b *testing.B) {
	s := newBench(b)
	v := []uct.Vec{{Buf: s.own.Bytes()[:1024], Mem: s.own}}
	s.run(b, func() uct.Status { return s.ep.AMZcopy(1, 2, nil, v, 0) })
}

func BenchmarkPutShort(b *testing.B) {
	s := newBench(b)
	p := make([]byte, 8)
	s.run(b, func() uct.Status { return s.ep.PutShort(p, s.addr, s.key) })
}

func BenchmarkPutZcopy(b *testing.B) {
	s := newBench(b)
	v := []uct.Vec{{Buf: s.own.Bytes()[:64<<10], Mem: s.own}}
	b.SetBytes(64 << 10)
	s.run(b, func() uct.Status { return s.ep.PutZcopy(v, s.addr, s.key, 0) })
}

// BenchmarkProgressAM is a ping-pong of 8 bytes, each pass of either side.
func BenchmarkProgressAM(b *testing.B) {
	s := newBench(b)
	s.b.reply = func(*uct.Desc) { s.back.AMUint64(1, 2, 3) }
	b.ReportAllocs()
	for b.Loop() {
		s.n = 0
		s.ep.AMUint64(1, 2, 3)
		for s.n == 0 {
			s.b.Progress(64)
			s.a.Progress(64)
		}
	}
}

func BenchmarkProgressIdle(b *testing.B) {
	s := newBench(b)
	b.ReportAllocs()
	for b.Loop() {
		s.a.Progress(64)
	}
}

// BenchmarkVerbsWrite is BenchmarkPutShort without the transport: the same work
// request on the same queue pair, a completion for every 32.
func BenchmarkVerbsWrite(b *testing.B) {
	s := newBench(b)
	until(b, func() bool {
		return s.a.sees(func() bool { return s.ep.txQueue.head == s.ep.txQueue.tail }) || s.ep.Flush(uct.FlushLocal, 0) == ucs.OK
	}, s.a, s.b)
	qp, cq, key := s.ep.txQueue.qp, s.a.sendCQ, s.a.d.Key(s.key)
	wrs := make([]verbs.SendWR, 1)
	wcs := make([]verbs.WC, sendPollBatch)
	w, free := &wrs[0], s.a.depth
	*w = verbs.SendWR{Op: verbs.OpWrite, InlineLen: 8, Remote: s.addr, RKey: key.RKey}
	p := make([]byte, 8)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for free == 0 {
			for range max(0, cq.Poll(wcs)) {
				free += signalEvery
			}
			s.b.Progress(64)
		}
		copy(w.Inline[:], p)
		w.Flags = verbs.SendInline
		if i%signalEvery == signalEvery-1 {
			w.Flags |= verbs.SendSignaled
		}
		if k, st := qp.PostSend(wrs); k != 1 {
			b.Fatal(st)
		}
		free--
	}
	s.a.signaled, s.ep.txQueue.signaled = 0, 0
	s.a.FailLater(s.ep, errCanceled)
}
