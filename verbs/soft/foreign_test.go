package soft

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// timeout67ms is the code of a time-out of 67 ms.
const timeout67ms = 14

// TestForeignSource: a foreign peer's packets are taken from any UDP port, with any
// IPv4 identification.
func TestForeignSource(t *testing.T) {
	for _, port := range []uint16{1, 1025, 0x8123, wire.Port, 0xc000, 0xffff} {
		for _, id := range []uint16{0, 1, 63, 64, 0x1234, 0xffff} {
			t.Run(fmt.Sprintf("port %d identification %d", port, id), func(t *testing.T) {
				w := newForeignWorld(t, 1, verbs.MTU1024, timeout67ms)
				w.peer.port, w.peer.id = func() uint16 { return port }, func() uint16 { return id }
				w.peer.write(w.side, []byte("datagram"), true)
				w.quiet()
				require.Equal(t, 1, len(w.peer.got))
				require.Equal(t, "datagram", string(w.side.buf[:8]))
				w.post(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.SendSignaled, NumSG: 1, SG: [4]verbs.SGE{w.side.piece(0, 8)}, RKey: foreignRKey})
				w.completions(1)
				require.Zero(t, value(t, w.devs[0], "device.timeouts"))
				require.Equal(t, "datagram", string(w.peer.mem[:8]))
			})
		}
	}
}

// TestForeignAsks: messages that nobody waits for are acknowledged too, by a peer that
// acknowledges only what asks: no time-out passes.
func TestForeignAsks(t *testing.T) {
	for _, burst := range []int{1, 2, 7, 30} {
		for _, flags := range []verbs.SendFlags{0, verbs.SendInline} {
			t.Run(fmt.Sprintf("%d at once, flags %v", burst, flags), func(t *testing.T) {
				w := newForeignWorld(t, 1, verbs.MTU1024, timeout67ms)
				start := w.net.Now()
				wr := verbs.SendWR{Op: verbs.OpWrite, Flags: flags, RKey: foreignRKey}
				if flags == 0 {
					wr.NumSG, wr.SG[0] = 1, w.side.piece(0, 100)
				} else {
					wr.InlineLen = 8
				}
				q := w.side.qp.(*qp)
				for range 10 {
					for range burst {
						w.post(wr)
					}
					w.until(func() bool { return q.req.una == q.req.psn })
				}
				require.Less(t, w.net.Now().Sub(start), 10*time.Millisecond)
				require.Zero(t, value(t, w.devs[0], "device.timeouts"))
				require.Zero(t, w.peer.repeated)
			})
		}
	}
}

// TestForeignLostReadAnswer: one answer of 64 READs is lost. The requester asks again
// once for what is missing: 96 requests at most, and no time-out.
func TestForeignLostReadAnswer(t *testing.T) {
	for _, tc := range []struct {
		mtu  verbs.MTU
		size int
	}{{verbs.MTU1024, 8}, {verbs.MTU4096, 4096}, {verbs.MTU1024, 4000}, {verbs.MTU256, 8192}} {
		for _, lost := range []int{0, 1, 20, 62} {
			t.Run(fmt.Sprintf("%d bytes, MTU %v, READ %d", tc.size, tc.mtu, lost), func(t *testing.T) {
				w := newForeignWorld(t, 1, tc.mtu, timeout67ms)
				npk := (tc.size + tc.mtu.Bytes() - 1) / tc.mtu.Bytes()
				gone := localPSN.Add(lost*npk + npk/2)
				w.peer.lose = func(p *packet) bool {
					if p.PSN != gone || p.Opcode.Info().Kind != wire.KindReadResponse {
						return false
					}
					gone = 1 << 24 // none
					return true
				}
				for i := range 64 {
					w.post(verbs.SendWR{
						ID: uint64(i), Op: verbs.OpRead, Flags: verbs.SendSignaled, NumSG: 1, SG: [4]verbs.SGE{w.side.piece(i*tc.size, tc.size)},
						Remote: uint64(i * tc.size), RKey: foreignRKey,
					})
				}
				w.completions(64)
				require.Equal(t, w.peer.mem[:64*tc.size], w.side.buf[:64*tc.size])
				require.LessOrEqual(t, w.peer.requests[wire.KindReadRequest], 96)
				require.Zero(t, value(t, w.devs[0], "device.timeouts"))
			})
		}
	}
}

// TestForeignDuplicateRead: each duplicate READ is answered by itself.
func TestForeignDuplicateRead(t *testing.T) {
	w := newForeignWorld(t, 1, verbs.MTU1024, timeout67ms)
	var ops []*foreignOp
	for range 16 {
		ops = append(ops, w.peer.read(w.side, 3000))
	}
	w.quiet()
	require.Equal(t, 16*3, len(w.peer.got))
	for _, o := range ops {
		w.peer.send(&o.p)
	}
	w.quiet()
	require.Equal(t, 2*16*3, len(w.peer.got))
	for i, p := range w.peer.got {
		require.Equal(t, foreignPSN.Add(i%48), p.psn)
	}
	w.peer.send(&ops[9].p)
	w.quiet()
	require.Equal(t, 2*16*3+3, len(w.peer.got))
}

// TestForeignDuplicateWrite: an ACK of a duplicate has the PSN of the last request, or
// that of the duplicate where a READ or an atomic was executed since.
func TestForeignDuplicateWrite(t *testing.T) {
	data := []byte("writes 8")
	for name, tc := range map[string]struct {
		requests string // w: WRITE, r: READ of three packets, a: atomic
		again    []int  // requests that come again
		want     []int  // PSNs of the ACKs, from the first
	}{
		"WRITEs alone":            {"www", []int{0}, []int{2}},
		"before an atomic":        {"wa", []int{0}, []int{0}},
		"before a READ":           {"wr", []int{0}, []int{0}},
		"behind an atomic":        {"waw", []int{2}, []int{2}},
		"behind, not the last":    {"wrww", []int{2}, []int{5}},
		"two before an atomic":    {"wwa", []int{0, 1}, []int{0, 1}},
		"before and behind":       {"waw", []int{0, 2}, []int{0, 2}},
		"before the last atomic":  {"wawaw", []int{0, 2, 4}, []int{0, 2, 4}},
		"before a READ and WRITE": {"wrw", []int{0}, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newForeignWorld(t, 1, verbs.MTU1024, timeout67ms)
			var ops []*foreignOp
			for _, c := range tc.requests {
				switch c {
				case 'w':
					ops = append(ops, w.peer.write(w.side, data, true))
				case 'r':
					ops = append(ops, w.peer.read(w.side, 3000))
				case 'a':
					ops = append(ops, w.peer.fetchAdd(w.side, 1))
				}
			}
			w.quiet()
			w.peer.got = nil
			for i, k := range tc.again {
				w.peer.send(&ops[k].p)
				w.quiet()
				require.Equal(t, i+1, len(w.peer.got))
				require.Equal(t, foreignPSN.Add(tc.want[i]), w.peer.got[i].psn)
				require.Equal(t, wire.Acknowledge, w.peer.got[i].op)
			}
			require.Zero(t, w.peer.badACKs)
		})
	}
}

// TestForeignRequests: over a lossy network a foreign peer gets the value of each
// atomic; no plain ACK has its PSN.
func TestForeignRequests(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			w := newForeignWorld(t, seed, verbs.MTU1024, 8)
			w.net.SetDefault(sim.Link{Latency: 5 * time.Microsecond, Loss: 0.05, Duplicate: 0.05, Reorder: 0.05, Jitter: 30 * time.Microsecond})
			rng, sum := w.net.Rand(), uint64(0)
			for range 40 {
				var atomics []*foreignOp
				for range 1 + rng.IntN(12) {
					switch rng.IntN(4) {
					case 0:
						w.peer.read(w.side, rng.IntN(4000))
					case 1:
						atomics = append(atomics, w.peer.fetchAdd(w.side, 7))
					default:
						w.peer.write(w.side, []byte("12345678"), rng.IntN(2) == 0)
					}
				}
				w.until(func() bool { return w.peer.una == w.peer.next })
				w.peer.ops = nil
				for _, a := range atomics {
					require.True(t, a.valid, "an atomic ended without its value")
					require.Equal(t, sum, a.value)
					sum += 7
				}
			}
			require.Equal(t, sum, binary.NativeEndian.Uint64(w.side.buf[64:]))
			require.Zero(t, w.peer.badACKs)
		})
	}
}
