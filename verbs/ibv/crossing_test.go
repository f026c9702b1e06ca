//go:build linux && cgo && ibverbs

package ibv

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// form is a call of the data path, with a provider that does nothing.
type form struct {
	name string
	ops  int // operations of a call
	run  func()
}

// forms lists the calls; the first is an empty call of C.
func forms(s *stub) []form {
	sends, recvs, wcs := make([]verbs.SendWR, 64), make([]verbs.RecvWR, 64), make([]verbs.WC, 64)
	for i := range sends {
		sends[i] = verbs.SendWR{ID: uint64(i), Op: verbs.OpWrite, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{{Addr: 1 << 20, Len: 8, LKey: 1}}}
		recvs[i] = verbs.RecvWR{ID: uint64(i), NumSG: 1, SG: sends[i].SG}
	}
	inline := sends[0]
	inline.Flags, inline.NumSG, inline.InlineLen = verbs.SendSignaled|verbs.SendInline, 0, 8
	list := []verbs.SendWR{inline}
	fs := []form{{"empty call of C", 1, crossing}}
	for _, n := range []int{1, 16, 64} {
		fs = append(fs, form{fmt.Sprintf("post %d", n), n, func() { s.qp.PostSend(sends[:n]) }})
	}
	fs = append(fs, form{"post 1 inline", 1, func() { s.qp.PostSend(list) }})
	for _, n := range []int{1, 16, 64} {
		fs = append(fs, form{fmt.Sprintf("post %d receives", n), n, func() { s.qp.PostRecv(recvs[:n]) }})
	}
	fs = append(fs, form{"poll of an empty queue", 1, func() { s.empty.Poll(wcs[:16]) }})
	for _, n := range []int{1, 16, 64} {
		fs = append(fs, form{fmt.Sprintf("poll of %d completions", n), n, func() { s.full.Poll(wcs[:n]) }})
	}
	return append(
		fs,
		form{"post 1 and poll, in two calls", 1, func() { s.qp.PostSend(sends[:1]); s.empty.Poll(wcs[:16]) }},
		form{"post 1 and poll, in one call", 1, func() { s.qp.PostSendPoll(sends[:1], s.empty, wcs[:16]) }},
	)
}

func BenchmarkCrossing(b *testing.B) {
	s := newStub(true)
	defer s.close()
	for _, f := range forms(s) {
		b.Run(strings.ReplaceAll(f.name, " ", "-"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f.run()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*f.ops), "ns/wr")
		})
	}
}

// BenchmarkCrossingTable runs all forms in turns and prints the table of docs/perf/ibv.md: of each form
// the median over the rounds of its time, and of its time divided by that of the empty call in the same
// round.
func BenchmarkCrossingTable(b *testing.B) {
	const rounds, calls = 301, 2000
	s := newStub(true)
	defer s.close()
	fs := forms(s)
	times := make([][]float64, len(fs))
	for range rounds {
		for i, f := range fs {
			start := ucs.Now()
			for range calls {
				f.run()
			}
			times[i] = append(times[i], float64(ucs.Now().Sub(start).Nanoseconds())/calls)
		}
	}
	var t strings.Builder
	fmt.Fprintln(&t, "| call | ns | ÷ empty call | per operation, ÷ empty call |\n|---|---|---|---|")
	for i, f := range fs {
		var ratios []float64
		for k, v := range times[i] {
			ratios = append(ratios, v/times[0][k])
		}
		fmt.Fprintf(&t, "| %s | %.0f | %.2f | %.3f |\n", f.name, median(times[i]), median(ratios), median(ratios)/float64(f.ops))
	}
	fmt.Fprintln(os.Stdout, t.String()) // b.Log cuts it off
	for b.Loop() {                      // the table is the result
	}
}

func median[T cmp.Ordered](v []T) T {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// TestGateAllocs: no call of the data path allocates, and each does its work.
func TestGateAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not the product's under the race detector")
	}
	s := newStub(true)
	defer s.close()
	for _, f := range forms(s) {
		require.Zero(t, testing.AllocsPerRun(1000, f.run), f.name)
	}
}

// TestStub: what the C side makes of the structs of package verbs, and of those that are malformed.
func TestStub(t *testing.T) {
	s := newStub(true)
	defer s.close()
	n, st := s.qp.PostSend(make([]verbs.SendWR, 200)) // of several lists
	require.Equal(t, ucs.OK, st)
	require.Equal(t, 200, n)
	n, st = s.qp.PostSend(nil)
	require.Equal(t, ucs.OK, st)
	require.Zero(t, n)
	for name, bad := range map[string]verbs.SendWR{
		"opcode":         {Op: 200},
		"pieces":         {NumSG: verbs.MaxSGE + 1},
		"inline":         {Flags: verbs.SendInline, InlineLen: verbs.InlineLen + 1},
		"inline pieces":  {Flags: verbs.SendInline, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{{Len: 221}}},
		"inline wraps":   {Flags: verbs.SendInline, NumSG: 2, SG: [verbs.MaxSGE]verbs.SGE{{Len: 1<<32 - 8}, {Len: 16}}},
		"atomic wraps":   {Op: verbs.OpFetchAdd, NumSG: 2, SG: [verbs.MaxSGE]verbs.SGE{{Len: 1<<32 - 8}, {Len: 16}}},
		"inline read":    {Op: verbs.OpRead, Flags: verbs.SendInline},
		"atomic of none": {Op: verbs.OpFetchAdd},
	} {
		wrs := make([]verbs.SendWR, 100)
		wrs[70] = bad
		n, st := s.qp.PostSend(wrs)
		require.Equal(t, ucs.InvalidParam, st, name)
		require.Equal(t, 70, n, name)
	}
	recvs := make([]verbs.RecvWR, 100)
	recvs[65].NumSG = verbs.MaxSGE + 1
	n, st = s.qp.PostRecv(recvs)
	require.Equal(t, ucs.InvalidParam, st)
	require.Equal(t, 65, n)

	wcs := make([]verbs.WC, 100)
	require.Equal(t, 100, s.full.Poll(wcs))
	require.EqualValues(t, 99-64, wcs[99].ID) // the second chunk of 64
	require.Equal(t, verbs.QPN(7), wcs[99].QPN)
	n, st, k := s.qp.PostSendPoll(make([]verbs.SendWR, 3), s.full, wcs[:5])
	require.Equal(t, []any{3, ucs.OK, 5}, []any{n, st, k})
	n, st, k = s.qp.PostSendPoll([]verbs.SendWR{{}, {Op: 200}}, s.empty, wcs)
	require.Equal(t, []any{1, ucs.InvalidParam, 0}, []any{n, st, k})
	s.closeFull()
	require.Equal(t, -1, s.full.Poll(wcs))
	_, st, k = s.qp.PostSendPoll(make([]verbs.SendWR, 1), s.full, wcs)
	require.Equal(t, []any{ucs.OK, -1}, []any{st, k})
	s.closeQP()
	_, st = s.qp.PostSend(make([]verbs.SendWR, 1))
	require.Equal(t, ucs.Closed, st)
}

// TestDeviceGone: once the device was removed, posts end with a status of their own, and a queue is
// unusable when its completions have been polled.
func TestDeviceGone(t *testing.T) {
	s := newStub(false)
	defer s.close()
	wrs, wcs := []verbs.SendWR{{Op: verbs.OpSend}}, make([]verbs.WC, 4)
	n, st := s.qp.PostSend(wrs)
	require.True(t, n == 1 && st == ucs.OK)
	require.Zero(t, s.empty.Poll(wcs))
	s.fail()
	n, st = s.qp.PostSend(wrs)
	require.True(t, n == 0 && st == ucs.PeerFailed, "%d, %v", n, st)
	n, st = s.qp.PostRecv([]verbs.RecvWR{{}})
	require.True(t, n == 0 && st == ucs.PeerFailed, "%d, %v", n, st)
	require.Equal(t, -1, s.empty.Poll(wcs))
	require.Equal(t, len(wcs), s.full.Poll(wcs))
	_, st, polled := s.qp.PostSendPoll(wrs, s.empty, wcs)
	require.True(t, st == ucs.PeerFailed && polled == -1)
}
