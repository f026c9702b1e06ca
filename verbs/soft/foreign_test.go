package soft

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
