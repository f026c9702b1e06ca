package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The flush of a worker that closes covers lanes for replies alone. One whose peer closes
// its connection meanwhile does not cancel the flush.
func TestCloseFlushesReplyLanes(t *testing.T) {
	for _, transport := range []string{"shm", "rc", "ud"} {
		t.Run(transport, func(t *testing.T) {
			p := newSWPair(t, transport, 64)
			sent := p.e.TagSendSync([]byte{1}, 1)
			got := p.b.TagRecv(make([]byte, 1), 1, ^Tag(0))
			p.until(func() bool { return got.Done() })
			reply := 0
			for i := range p.b.t.lanes {
				if l := &p.b.t.lanes[i]; l.ep != nil && l.refs == 0 && l.replyRefs > 0 {
					reply = i
				}
			}
			require.NotZero(t, reply)
			f := p.b.t.flushAlive()
			p.until(func() bool { return sent.Done() })
			p.e.Abort(nil)
			p.until(func() bool { return f.Done() && len(p.a.t.laneOf) == 0 })
			for range 1000 {
				p.a.Progress()
				p.b.Progress()
			}
			if err := f.Err(); err != nil {
				require.ErrorIs(t, err, ErrPeerFailed)
			}
			require.NotNil(t, p.b.t.lanes[reply].ep, "it stays open until the worker closes")
			require.NoError(t, p.b.Close())
		})
	}
}
