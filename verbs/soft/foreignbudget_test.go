package soft

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// TestForeignWithoutLoss: a device and a foreign peer send each other all kinds of
// requests. Without loss no time-out passes on either side, nothing is retransmitted,
// and no plain ACK has the PSN of a READ or an atomic.
func TestForeignWithoutLoss(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			w := newForeignWorld(t, seed, verbs.MTU1024, timeout67ms)
			rng, q, wcs := w.net.Rand(), w.side.qp.(*qp), make([]verbs.WC, 64)
			added := uint64(0) // by the device
			binary.NativeEndian.PutUint64(w.peer.mem, 0)
			for range 40 {
				start := w.net.Now()
				for range 1 + rng.IntN(30) {
					size := rng.IntN(5000)
					wr := verbs.SendWR{Op: verbs.OpWrite, NumSG: 1, SG: [4]verbs.SGE{w.side.piece(4096, size)}, Remote: 4096, RKey: foreignRKey}
					switch rng.IntN(8) {
					case 0:
						wr.Op = verbs.OpRead
					case 1:
						wr.Op, wr.SG[0], wr.Remote, wr.Swap = verbs.OpFetchAdd, w.side.piece(0, 8), 0, 1
						added++
					case 2:
						wr.Op = verbs.OpSend
					case 3:
						wr.NumSG, wr.InlineLen, wr.Flags = 0, uint8(rng.IntN(verbs.InlineLen)), verbs.SendInline
					}
					if rng.IntN(2) == 0 {
						wr.Flags |= verbs.SendSignaled
					}
					w.post(wr)
					switch rng.IntN(8) {
					case 0:
						w.peer.read(w.side, rng.IntN(4000))
					case 1:
						w.peer.fetchAdd(w.side, 1)
					case 2, 3:
						w.peer.write(w.side, []byte("12345678"), rng.IntN(2) == 0)
					}
				}
				w.until(func() bool {
					for _, wc := range wcs[:w.side.cq.Poll(wcs)] {
						require.Equal(t, verbs.WCSuccess, wc.Status)
					}
					return q.req.head == q.sq.end() && w.peer.una == w.peer.next
				})
				w.peer.ops = nil
				require.Less(t, w.net.Now().Sub(start), 10*time.Millisecond)
			}
			require.Equal(t, added, binary.NativeEndian.Uint64(w.peer.mem))
			require.Zero(t, value(t, w.devs[0], "device.timeouts"))
			require.Zero(t, value(t, w.devs[0], "device.retransmits"))
			require.Zero(t, w.peer.timeouts)
			require.Zero(t, w.peer.repeated)
			require.Zero(t, w.peer.badACKs)
		})
	}
}

// TestForeignDuplicateAtomic: each duplicate of an atomic costs one answer, and is not
// executed again.
func TestForeignDuplicateAtomic(t *testing.T) {
	w := newForeignWorld(t, 1, verbs.MTU1024, timeout67ms)
	var ops []*foreignOp
	for range 16 {
		ops = append(ops, w.peer.fetchAdd(w.side, 1))
	}
	w.quiet()
	for _, o := range ops {
		w.peer.send(&o.p)
	}
	w.quiet()
	require.Len(t, w.peer.got, 2*16)
	for i, p := range w.peer.got {
		require.Equal(t, foreignGot{wire.AtomicAcknowledge, foreignPSN.Add(i % 16)}, p)
	}
	require.EqualValues(t, 16, binary.NativeEndian.Uint64(w.side.buf[64:]))
}

// TestForeignLastWord: the acknowledgement that goes when the program ends the queue
// pair has the PSN of a WRITE, and none goes where a READ or an atomic is the last
// request: its answer acknowledges.
func TestForeignLastWord(t *testing.T) {
	for requests, want := range map[string]int{ // w: WRITE that does not ask, r: READ of three packets, a: atomic
		"w": 0, "ww": 1, "wa": -1, "wr": -1, "aw": 1, "rw": 3, "waw": 2, "wawr": -1,
	} {
		t.Run(requests, func(t *testing.T) {
			w := newForeignWorld(t, 1, verbs.MTU1024, timeout67ms)
			for _, c := range requests {
				switch c {
				case 'w':
					w.peer.write(w.side, []byte("12345678"), false)
				case 'r':
					w.peer.read(w.side, 3000)
				case 'a':
					w.peer.fetchAdd(w.side, 1)
				}
			}
			for end := w.net.Now().Add(15 * time.Microsecond); w.net.Now().Before(end); { // no ACK is due yet
				w.advance()
			}
			answers := len(w.peer.got)
			q := w.side.qp.(*qp)
			q.acquire()
			q.sendFinalAck()
			q.transmitAndRelease()
			w.quiet()
			if want < 0 {
				require.Len(t, w.peer.got, answers)
			} else {
				require.Len(t, w.peer.got, answers+1)
				require.Equal(t, foreignGot{wire.Acknowledge, foreignPSN.Add(want)}, w.peer.got[answers])
			}
			require.Zero(t, w.peer.badACKs)
		})
	}
}

// TestForeignRepeatedNAK: sequence NAKs that repeat one gap, or report another one of the
// same window, halve the window once. The next window is halved anew.
func TestForeignRepeatedNAK(t *testing.T) {
	w := newForeignWorld(t, 1, verbs.MTU1024, 0)
	r := &w.side.qp.(*qp).req
	muted := true
	w.peer.lose = func(p *packet) bool { return muted && p.Syndrome.IsAck() }
	burst := func() {
		for range 20 {
			w.post(verbs.SendWR{Op: verbs.OpWrite, NumSG: 1, SG: [4]verbs.SGE{w.side.piece(0, 8)}, RKey: foreignRKey})
		}
		w.quiet()
	}
	nak := func(psn verbs.PSN) {
		w.peer.send(&packet{Header: wire.Header{Opcode: wire.Acknowledge, PSN: psn, Syndrome: wire.NakSequence}})
		w.quiet()
	}
	burst()
	require.Equal(t, defaultWindow, r.window.cur)
	for range 3 {
		nak(localPSN)
		require.Equal(t, defaultWindow/2, r.window.cur)
	}
	nak(localPSN.Add(5))
	require.Equal(t, localPSN.Add(5), r.una)
	require.Equal(t, defaultWindow/2, r.window.cur)
	require.Equal(t, uint64(4), value(t, w.devs[0], "device.retransmits"))

	muted = false
	nak(localPSN.Add(5))
	require.Equal(t, localPSN.Add(20), r.una, "the peer acknowledges duplicates")
	before := r.window.cur
	muted = true
	burst()
	nak(r.una)
	require.Equal(t, before/2, r.window.cur)
}
