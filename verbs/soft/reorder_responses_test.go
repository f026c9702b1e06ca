package soft

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// answerRun is READs and atomics on a network with a round trip of 20 µs whose faults
// are chosen.
type answerRun struct {
	requests map[verbs.PSN]int // by PSN
	answers  map[verbs.PSN]int // responses and atomics' answers, by PSN
	asked    int               // requests
	came     int               // answers
	part     int               // packets of a part of a READ
	took     time.Duration
}

// answerFault says what becomes of the n-th transmission, counted from 1, of a request
// or an answer, at its sender, or received at its receiver. n is 0 for an ACK or NAK.
type answerFault func(psn verbs.PSN, n int, answer, received bool) Verdict

// runAnswers runs wrs, each of which reads from the peer or counts there, and compares
// what they bring: a READ the bytes of its place, an addition of 1 the number of those
// before it.
func runAnswers(t *testing.T, features uint32, fault answerFault, wrs ...verbs.SendWR) *answerRun {
	r := &answerRun{requests: make(map[verbs.PSN]int), answers: make(map[verbs.PSN]int)}
	w, err := newSimWorld(1, 2, Config{Faults: &Faults{Hook: func(p *PacketInfo) Verdict {
		kind := p.Op.Info().Kind
		answer := kind == wire.KindReadResponse || p.Op == wire.AtomicAcknowledge
		n, all := r.requests, &r.asked
		switch {
		case answer:
			n, all = r.answers, &r.came
		case kind == wire.KindAck:
			return fault(p.PSN, 0, false, p.Received)
		}
		if !p.Received {
			n[p.PSN]++
			*all++
		}
		return fault(p.PSN, n[p.PSN], answer, p.Received)
	}}})
	require.NoError(t, err)
	w.net.SetDefault(sim.Link{Latency: 10 * time.Microsecond, Bandwidth: 3e9, Overhead: 58})
	size := 8
	for i := range wrs {
		size += int(wrs[i].SG[0].Len)
	}
	from, to := newSimSide(t, w.devs[0], size), newSimSide(t, w.devs[1], size)
	s := lossySetup()
	s.mtu, s.timeout, s.features, s.reads = verbs.MTU1024, longTimeout, features, [2]uint8{16, 16}
	require.NoError(t, connectRC(from.qp, to.qp, w.devs[0], w.devs[1], s))
	for i := 8; i < size; i++ { // the first word is what atomics count in
		to.buf[i] = byte(i*7 + i>>10)
	}
	at := 8
	for i := range wrs {
		n := int(wrs[i].SG[0].Len)
		wrs[i].ID, wrs[i].Flags, wrs[i].NumSG, wrs[i].RKey = uint64(i), wrs[i].Flags|verbs.SendSignaled, 1, to.mr.RKey()
		wrs[i].SG[0] = from.piece(at, n)
		if wrs[i].Remote = to.mr.Addr(); wrs[i].Op == verbs.OpRead {
			wrs[i].Remote += uint64(at)
		}
		at += n
	}
	n, _ := from.qp.PostSend(wrs)
	require.Equal(t, len(wrs), n)
	wcs := make([]verbs.WC, len(wrs))
	for done := 0; done < len(wrs); {
		require.True(t, w.advance())
		for _, wc := range wcs[:from.cq.Poll(wcs)] {
			require.Equal(t, verbs.WCSuccess, wc.Status)
			require.EqualValues(t, done, wc.ID)
			done++
		}
		require.Less(t, w.net.Now().Sub(sim.Start), time.Second)
	}
	r.took = w.net.Now().Sub(sim.Start)
	at, added := 8, uint64(0)
	for i := range wrs {
		n := int(wrs[i].SG[0].Len)
		switch wrs[i].Op {
		case verbs.OpRead:
			require.Equal(t, to.buf[at:at+n], from.buf[at:at+n], "READ %d", i)
		case verbs.OpFetchAdd:
			require.Equal(t, added, binary.NativeEndian.Uint64(from.buf[at:]), "addition %d", i)
			added++
		default:
		}
		at += n
	}
	require.Equal(t, added, binary.NativeEndian.Uint64(to.buf))
	q := from.qp.(*qp)
	r.part = q.req.window.part
	require.Empty(t, q.req.reorder.packets)
	require.Zero(t, q.req.reorder.bytes)
	require.Zero(t, q.req.gapDeadline)
	require.Zero(t, q.req.rdAtomic)
	require.Zero(t, value(t, w.devs[0], "device.timeouts"))
	return r
}

// readOf is a READ of so many packets of 1024 bytes.
func readOf(packets int) verbs.SendWR {
	return verbs.SendWR{Op: verbs.OpRead, SG: [4]verbs.SGE{{Len: uint32(packets * 1024)}}}
}

func addition() verbs.SendWR {
	return verbs.SendWR{Op: verbs.OpFetchAdd, Swap: 1, SG: [4]verbs.SGE{{Len: 8}}}
}

// emptyWrite is a WRITE of no bytes: an ACK between answers.
func emptyWrite() verbs.SendWR { return verbs.SendWR{Op: verbs.OpWrite} }

// lostAnswers loses the first k transmissions of some answers.
func lostAnswers(k int, psns ...verbs.PSN) answerFault {
	return func(psn verbs.PSN, n int, answer, received bool) (v Verdict) {
		for _, p := range psns {
			v.Drop = v.Drop || answer && !received && p == psn && n <= k
		}
		return v
	}
}

func noFault(verbs.PSN, int, bool, bool) Verdict { return Verdict{} }

// TestAnswerGap: of the answers that follow a lost one none is requested again.
func TestAnswerGap(t *testing.T) {
	clean := runAnswers(t, verbs.PeerProbe, noFault, readOf(300))
	require.Equal(t, 300, clean.came)
	end := verbs.PSN(clean.part) // of the first part
	require.Less(t, end, verbs.PSN(290))
	for _, tc := range []struct {
		name            string
		lost            []verbs.PSN
		requests, again int // more than without loss
	}{
		{"one", []verbs.PSN{10}, 1, 1},
		{"the first", []verbs.PSN{0}, 1, 1},
		{"three apart", []verbs.PSN{10, 40, 200}, 3, 3},
		{"two in a row", []verbs.PSN{10, 11}, 1, 2},
		{"around one that came", []verbs.PSN{10, 12}, 2, 2},
		{"at the end of a part and behind it", []verbs.PSN{end - 2, end - 1, end}, 2, 3},
		{"with too few behind it", []verbs.PSN{298}, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := runAnswers(t, verbs.PeerProbe, lostAnswers(1, tc.lost...), readOf(300))
			require.Equal(t, clean.asked+tc.requests, r.asked)
			require.Equal(t, 300+tc.again, r.came)
			require.Less(t, r.took, clean.took+100*time.Microsecond, "less than a probe takes")
		})
	}
}

// TestAnswerLate: an answer that others overtake by a little costs nothing.
func TestAnswerLate(t *testing.T) {
	clean := runAnswers(t, verbs.PeerProbe, noFault, readOf(300))
	r := runAnswers(t, verbs.PeerProbe, func(psn verbs.PSN, _ int, answer, received bool) (v Verdict) {
		if answer && received && psn%50 == 10 {
			v.Delay = time.Microsecond / 2 // one or two others pass
		}
		return v
	}, readOf(300))
	require.Equal(t, clean.asked, r.asked)
	require.Equal(t, 300, r.came)
}

// TestAnswerTwice: an answer that comes both late and again counts once.
func TestAnswerTwice(t *testing.T) {
	clean := runAnswers(t, verbs.PeerProbe, noFault, readOf(300))
	r := runAnswers(t, verbs.PeerProbe, func(psn verbs.PSN, n int, answer, received bool) (v Verdict) {
		if answer && received && psn == 10 && n == 1 {
			v.Delay = 30 * time.Microsecond
		}
		return v
	}, readOf(300))
	require.Equal(t, clean.asked+1, r.asked)
	require.Equal(t, 301, r.came)
}

// TestAnswerLostTwice: where the second request or its answer is lost too, a probe
// requests the missing answers alone; where that is lost, the next one goes back.
func TestAnswerLostTwice(t *testing.T) {
	clean := runAnswers(t, verbs.PeerProbe, noFault, readOf(300))
	r := runAnswers(t, verbs.PeerProbe, lostAnswers(2, 10), readOf(300))
	require.Equal(t, clean.asked+2, r.asked)
	require.Equal(t, 302, r.came)
	r = runAnswers(t, verbs.PeerProbe, lostAnswers(3, 10), readOf(300))
	require.Equal(t, clean.asked+3, r.asked)
	require.Less(t, r.came, 303+120, "the rest of a part")
}

// TestAnswersMixed: every answer, and every request, of READs, additions and writes that
// take turns is lost once. Each operation ends well, in order; each addition is executed once.
func TestAnswersMixed(t *testing.T) {
	var wrs []verbs.SendWR
	for range 4 {
		wrs = append(wrs, readOf(3), addition(), emptyWrite(), readOf(1), readOf(2), addition(), addition())
	}
	clean := runAnswers(t, verbs.PeerProbe, noFault, wrs...)
	for psn := range clean.answers {
		t.Run(fmt.Sprint(psn), func(t *testing.T) {
			r := runAnswers(t, verbs.PeerProbe, lostAnswers(1, psn), wrs...)
			require.Equal(t, clean.asked+1, r.asked)
			require.Equal(t, clean.came+1, r.came)
		})
	}
	t.Run("on both sides of a write", func(t *testing.T) {
		r := runAnswers(t, verbs.PeerProbe, func(psn verbs.PSN, n int, answer, received bool) Verdict {
			return Verdict{Drop: !received && (answer && n == 1 && (psn == 3 || psn == 5) || n == 0 && psn == 4)}
		}, wrs...)
		require.Equal(t, clean.asked+2, r.asked)
		require.Equal(t, clean.came+2, r.came)
	})
	for psn := range clean.requests {
		t.Run(fmt.Sprint("request ", psn), func(t *testing.T) {
			r := runAnswers(t, verbs.PeerProbe, func(p verbs.PSN, n int, answer, received bool) Verdict {
				return Verdict{Drop: !answer && !received && p == psn && n == 1}
			}, wrs...)
			require.Equal(t, clean.asked+1, r.asked)
			require.Equal(t, clean.came, r.came)
		})
	}
}

// TestGapBehindMissingAnswer: a NAK is acted on while the answer of a READ before it is
// missing.
func TestGapBehindMissingAnswer(t *testing.T) {
	wrs := []verbs.SendWR{readOf(3), emptyWrite(), emptyWrite(), emptyWrite(), emptyWrite(), emptyWrite()}
	clean := runAnswers(t, verbs.PeerProbe, noFault, wrs...)
	r := runAnswers(t, verbs.PeerProbe, func(psn verbs.PSN, n int, answer, received bool) Verdict {
		return Verdict{Drop: !received && n == 1 && (answer && psn == 2 || psn == 3)}
	}, wrs...)
	require.Equal(t, clean.asked+2, r.asked)
	require.Equal(t, clean.came+1, r.came)
	require.Less(t, r.took, clean.took+200*time.Microsecond, "less than a probe takes")
}

// TestAnswerForeign: another peer is asked again from the missing answer on.
func TestAnswerForeign(t *testing.T) {
	clean := runAnswers(t, 0, noFault, readOf(100))
	r := runAnswers(t, 0, lostAnswers(1, 10), readOf(100))
	require.Equal(t, clean.asked+1, r.asked)
	require.Equal(t, 100+90, r.came)
}

// TestReorderBufferBounded: a peer cannot make a queue pair hold more than a window, in
// bytes or in packets, and what was held can be used again.
func TestReorderBufferBounded(t *testing.T) {
	const most = 8
	payload := make([]byte, 4096)
	for _, n := range []int{0, 1, 512, 1024, 4096} {
		var b reorderBuffer
		p := packet{n: n, nsg: 1, sg: [verbs.MaxSGE][]byte{payload[:n]}}
		fill := func() {
			for i := 2 * shortPackets * most; i > 0; i-- {
				p.PSN = verbs.PSN(0xfffff0).Add(i)
				b.insert(&p, 0xfffff0, most)
				b.insert(&p, 0xfffff0, most) // once more
			}
		}
		fill()
		require.LessOrEqual(t, b.bytes, longPacket*most, "packets of %d bytes", n)
		require.Len(t, b.packets, min(shortPackets*most, longPacket*most/max(n, 1)), "packets of %d bytes", n)
		for i := 1; i < len(b.packets); i++ {
			require.Positive(t, b.packets[i].PSN.Diff(b.packets[i-1].PSN))
		}
		for len(b.packets) > 0 {
			bufferedPool.Put(b.popFirst())
		}
		require.Zero(t, b.bytes)
		fill()
		b.reset()
		require.Zero(t, b.bytes)
		require.Empty(t, b.packets)
	}
}

// TestGateReorderBuffer: what is held on a lossy path comes from a pool, at the
// responder and at the requester. Once warm, thousands of packets that wait cost no
// new buffer, and a QP without gaps holds none.
func TestGateReorderBuffer(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector pools drop what they are given")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	made, allocate := 0, bufferedPool.New
	defer func() { bufferedPool.New = allocate }()
	bufferedPool.New = func() any {
		made++
		return allocate()
	}
	link := sim.Link{Latency: 50 * time.Microsecond, Bandwidth: 1.25e9, Loss: 0.01, Reorder: 0.02, Jitter: 100 * time.Microsecond}
	for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpRead} {
		runtime.GC() // twice empties pools
		runtime.GC()
		before := made
		simPackets(t, link, op, verbs.MTU4096, 64<<10)
		require.Positive(t, made-before, "%v: nothing was held", op)
		before = made
		simPackets(t, link, op, verbs.MTU4096, 64<<10)
		require.LessOrEqual(t, made-before, defaultWindow, "%v of 4096 packets", op)
	}
}
