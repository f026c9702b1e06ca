package soft

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestInterruptedReceiver: who receives is interrupted for longer than all retries
// last, while others poll. The answer had come; the request ends well.
func TestInterruptedReceiver(t *testing.T) {
	for _, c := range []Config{{Link: LinkInproc}, {Link: LinkUDP, Addr: localhost}} {
		t.Run(c.Link, func(t *testing.T) {
			c.Engine = EngineInline
			p := New(c)
			a, b := newEnd(t, p, verbs.RC, 64), newEnd(t, p, verbs.RC, 64)
			at := verbs.QPAttr{MaxDestRdAtomic: 1, MaxRdAtomic: 1, MinRNRTimer: 1, Timeout: 1, RetryCnt: 1}
			a.connectAs(b, at)
			b.connectAs(a, at)
			a.poll(make([]verbs.WC, 1)) // the first post after a poll goes at once
			a.send(verbs.SendWR{
				ID: 7, Op: verbs.OpWrite, Flags: verbs.SendSignaled, NumSG: 1,
				SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 64)}, Remote: b.mr.Addr(), RKey: b.mr.RKey(),
			})
			var wc [1]verbs.WC
			for value(t, b.device(), "device.acks") == 0 {
				b.poll(wc[:])
			}
			d := a.device()
			require.True(t, d.own.rx.tryAcquire())
			early := 0
			for n, end := 0, ucs.Now().Add(1e6); n < 1000 || ucs.Now().Before(end); n++ {
				early += a.cq.Poll(wc[:])
			}
			d.own.rx.tryRelease()
			require.Zero(t, early, "%v", wc[0].Status)
			w := a.completion(b)
			assert.Equal(t, [2]any{uint64(7), verbs.WCSuccess}, [2]any{w.ID, w.Status})
			assert.Zero(t, value(t, d, "device.timeouts"))
		})
	}
}
