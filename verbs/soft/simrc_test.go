package soft

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// lossy is a network on which a twentieth of all packets is lost.
var lossy = sim.Link{
	Latency: 5 * time.Microsecond, Loss: 0.05,
	Duplicate: 0.05, Reorder: 0.1, Jitter: 40 * time.Microsecond, Corrupt: 0.01,
}

// TestSimRC sends messages of random lengths over a lossy network: each arrives
// once, whole, in order.
func TestSimRC(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			w, err := newSimWorld(seed, 2, Config{})
			require.NoError(t, err)
			w.net.SetDefault(lossy)
			w.net.KeepTrace(200, describePacket)
			defer func() {
				if t.Failed() {
					t.Log(w.net.Trace())
				}
			}()
			stream(t, w.devs[0], w.devs[1], w.net.Rand(), messages{200, 8, 0}, func() {
				w.advance()
				require.Less(t, w.net.Now().Sub(sim.Start), 10*time.Second)
			})
			c := w.net.Counts()
			require.NotZero(t, c.Lost+c.Duplicated+c.Delayed)
		})
	}
}

// simSide is one end of a stream.
type simSide struct {
	cq  verbs.CQ
	qp  verbs.QP
	buf []byte
	mr  verbs.MR
}

func newSimSide(t testing.TB, d *device, size int) *simSide {
	pd, err := d.AllocPD()
	require.NoError(t, err)
	s := &simSide{buf: make([]byte, size)}
	s.mr, err = pd.Register(s.buf, verbs.MRConfig{Access: allAccess})
	require.NoError(t, err)
	s.cq, err = d.CreateCQ(verbs.CQConfig{Depth: 1000})
	require.NoError(t, err)
	s.qp, err = pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.QPCaps{MaxSend: 64, MaxRecv: 64}})
	require.NoError(t, err)
	return s
}

// piece is the part of the buffer from off on.
func (s *simSide) piece(off, n int) verbs.SGE {
	return verbs.SGE{Addr: s.mr.Addr() + uint64(off), Len: uint32(n), LKey: s.mr.LKey()}
}

// messages are how many stream sends, with which time-out and features of the
// queue pairs.
type messages struct {
	count    int
	timeout  uint8
	features uint32
}

// stream sends messages from one device to another and looks at what arrives;
// advance is called again and again.
func stream(t *testing.T, fromDev, toDev *device, rng *rand.Rand, m messages, advance func()) {
	const longest = 5000
	count, timeout := m.count, m.timeout

	from, to := newSimSide(t, fromDev, count*longest), newSimSide(t, toDev, count*longest)
	require.NoError(t, connectRC(from.qp, to.qp, fromDev, toDev, &rcSetup{
		mtu: verbs.MTU1024, psn: [2]verbs.PSN{verbs.PSN(rng.Uint32() & 0xffffff), 0xfffff0}, timeout: timeout, retry: 7,
		rnrRetry: [2]uint8{7, 7}, rnrTimer: 1, reads: [2]uint8{1, 1}, features: m.features,
	}))
	lens := make([]int, count)
	for i := range from.buf {
		from.buf[i] = byte(rng.Uint32())
	}
	sent, posted, acked, came := 0, 0, 0, 0
	wcs := make([]verbs.WC, 8)
	for acked < count || came < count {
		if sent < count && rng.IntN(2) == 0 {
			lens[sent] = rng.IntN(longest + 1)
			n, st := from.qp.PostSend([]verbs.SendWR{{
				ID: uint64(sent), Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [4]verbs.SGE{from.piece(sent*longest, lens[sent])},
			}})
			require.True(t, n == 1 || st == ucs.NoResource)
			sent += n
		}
		if posted < count && posted-came < 64 && rng.IntN(2) == 0 {
			n, _ := to.qp.PostRecv([]verbs.RecvWR{{ID: uint64(posted), NumSG: 1, SG: [4]verbs.SGE{to.piece(posted*longest, longest)}}})
			posted += n
		}
		for _, wc := range wcs[:from.cq.Poll(wcs)] {
			require.Equal(t, verbs.WCSuccess, wc.Status)
			require.EqualValues(t, acked, wc.ID)
			acked++
		}
		for _, wc := range wcs[:to.cq.Poll(wcs)] {
			require.Equal(t, verbs.WCSuccess, wc.Status)
			require.EqualValues(t, came, wc.ID)
			require.EqualValues(t, lens[came], wc.Len)
			at := came * longest
			require.Equal(t, from.buf[at:at+lens[came]], to.buf[at:at+lens[came]])
			came++
		}
		advance()
	}
}
