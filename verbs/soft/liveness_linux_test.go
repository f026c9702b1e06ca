package soft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
)

// address is the address of an end's port.
func (e *end) address(features uint32) *verbs.AHAttr {
	d := e.device()
	return &verbs.AHAttr{DGID: d.gid, DLID: d.lid, Port: 1, PeerFeatures: features}
}

// A device replies to probes while its program does nothing, and distinguishes its queue pairs from
// closed ones. Only soft devices are probed.
func TestPeerState(t *testing.T) {
	t.Parallel()
	a, b := pair(t, New(Config{Link: LinkUDP, Addr: localhost}), 64)
	at, n := b.address(verbs.PeerGoucx), b.qp.QPN()
	for began := time.Now(); time.Since(began) < 700*time.Millisecond; time.Sleep(time.Millisecond) {
		require.Equal(t, verbs.PeerUnknown, a.device().PeerState(at, n, 0))
		require.Equal(t, verbs.PeerUnknown, a.device().PeerState(b.address(0), n+1, 0))
	}
	require.NotZero(t, b.device().udp.Counts[udp.RxProbes].Load())
	require.LessOrEqual(t, b.device().udp.Counts[udp.RxProbes].Load(), uint64(5), "the peer without PeerGoucx is not probed")
	require.NoError(t, b.qp.Close())
	require.Eventually(t, func() bool { return a.device().PeerState(at, n, 0) == verbs.PeerQPClosed }, 20*time.Second, time.Millisecond)
	require.Equal(t, verbs.PeerUnknown, openTest(t, Config{}).PeerState(at, n, 0), "the in-process link")
}

// While a probe is unanswered, unacknowledged requests pause, unless their retries would end soon.
// They go on when the peer replies.
func TestPauseWhileUnanswered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		timeout uint8 // code
		pauses  bool
	}{{"long retries", 19, true}, {"short retries", 16, false}} {
		t.Run(c.name, func(t *testing.T) {
			p := New(Config{Link: LinkUDP, Addr: localhost, Engine: EngineInline})
			a, b := newEnd(t, p, verbs.RC, 64), newEnd(t, p, verbs.RC, 64)
			at := verbs.QPAttr{Timeout: c.timeout, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 1, PeerFeatures: verbs.PeerGoucx | verbs.PeerProbe}
			a.connectFeatures(b, at)
			b.connectFeatures(a, at)
			b.recv(1, 0, 64)
			a.send(verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, InlineLen: 8})
			a.poll(make([]verbs.WC, 1))
			d, q := a.device(), a.qp.(*qp)
			to, err := d.udp.Peer(b.device().gid, b.device().lid)
			require.NoError(t, err)
			for end := time.Now().Add(20 * time.Second); !d.udp.Unanswered(&to, b.qp.QPN()); time.Sleep(time.Millisecond) {
				d.PeerState(b.address(verbs.PeerGoucx), b.qp.QPN(), 0)
				require.True(t, time.Now().Before(end))
			}
			d.PeerState(b.address(verbs.PeerGoucx), b.qp.QPN(), 0)
			require.Equal(t, c.pauses, q.req.rnrWait > ucs.Now())
			if c.pauses {
				sent := q.counts[cntTxPackets]
				for range 64 {
					a.poll(make([]verbs.WC, 1))
				}
				require.Equal(t, sent, q.counts[cntTxPackets])
			}
			require.Equal(t, uint64(2), a.completion(b).ID)
		})
	}
}
