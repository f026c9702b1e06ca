package soft

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestUnderWay: while the peer does not answer, as many packets go as the window
// holds and not one more; when it does, the others follow.
func TestUnderWay(t *testing.T) {
	const window = 8
	for _, tc := range []struct {
		name           string
		messages, size int
		want           uint64
	}{
		{"messages of a packet", 40, 4000, window},
		{"short ones", 60, 8, shortPackets * window},
		{"a long one", 1, 40 * 4096, window},
		{"no more than there is", 5, 4000, 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := pair(t, New(Config{Link: LinkInproc, Engine: EngineInline, Window: window}), tc.messages*tc.size)
			wrs := make([]verbs.SendWR, tc.messages)
			for i := range wrs {
				wrs[i] = verbs.SendWR{
					ID: uint64(i), Op: verbs.OpWrite, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(i*tc.size, tc.size)},
					Remote: b.mr.Addr() + uint64(i*tc.size), RKey: b.mr.RKey(),
				}
			}
			wrs[len(wrs)-1].Flags = verbs.SendSignaled
			for i := range a.buf {
				a.buf[i] = byte(i>>8 ^ i)
			}
			n, st := a.qp.PostSend(wrs)
			require.Equal(t, ucs.OK, st)
			require.Equal(t, len(wrs), n)
			for range 10 {
				a.cq.Poll(make([]verbs.WC, 1))
			}
			assert.Equal(t, tc.want, value(t, a.device(), "device.tx_packets"))
			require.Equal(t, uint64(len(wrs)-1), a.completion(b).ID)
			require.Equal(t, a.buf, b.buf)
		})
	}
}
