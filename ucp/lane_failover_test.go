package ucp

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/rc"
	"github.com/goucx/goucx/transports/ud"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// poor gives rc over a device of those settings, and ud over an ordinary one.
func poor(c soft.Config) []uct.Component {
	on := func(c soft.Config) func(*config.Set, *zap.Logger) []verbs.Provider {
		c.Link, c.Switch = soft.LinkInproc, soft.NewSwitch()
		return func(_ *config.Set, log *zap.Logger) []verbs.Provider {
			c.Log = log
			return []verbs.Provider{soft.New(c)}
		}
	}
	return []uct.Component{rc.Component(on(c)), ud.Component(on(soft.Config{}))}
}

// crowded is poor with so many queue pairs.
func crowded(qps int) []uct.Component { return poor(soft.Config{Limits: soft.Limits{QPs: qps}}) }

// replacedOf is how many lanes of w were replaced.
func replacedOf(w *Worker) uint64 {
	for _, v := range w.Stats().Snapshot() {
		if v.Name == "ucp.replaced" {
			return v.Value
		}
	}
	return 0
}

// Where this side's device has no queue pair for a connection, or the peer's has
// none, another transport takes over all that was posted, in its order.
func TestReplaced(t *testing.T) {
	const others = 2 // queue pairs of the two workers, for connection messages
	for halves, name := range []string{"none here", "none there", "enough"} {
		t.Run(name, func(t *testing.T) {
			p := newIdlePairOver(t, crowded(others+halves), 64)
			sizes := []int{8, 100, 3000, 50_000, 1 << 20}
			var sent []Request
			var got [][]byte
			var recvs []RecvRequest
			for i := range 50 {
				m := make([]byte, sizes[i%len(sizes)])
				m[0] = byte(i)
				sent = append(sent, p.e.TagSend(m, 7))
				switch i {
				case 10:
					sent = append(sent, p.k.PutUint64(11, 8), p.k.Put([]byte("sixteen bytes...!"), 16))
					p.e.Fence()
					sent = append(sent, p.word(8).Add(31))
				case 20:
					sent = append(sent, p.e.Flush())
				case 30:
					sent = append(sent, p.e.TagSendSync([]byte{0}, 8))
				}
				got = append(got, make([]byte, 1<<20))
				recvs = append(recvs, p.b.TagRecv(got[i], 7, ^Tag(0)))
			}
			recvs = append(recvs, p.b.TagRecv(make([]byte, 8), 8, ^Tag(0)))
			for _, r := range sent {
				p.must(r)
			}
			for _, r := range recvs {
				p.until(r.Done)
				require.NoError(t, r.Err())
			}
			for i, b := range got {
				require.Equal(t, byte(i), b[0])
			}
			p.must(p.e.Flush())
			mem := p.m.Bytes()
			require.EqualValues(t, 42, binary.LittleEndian.Uint64(mem[8:]))
			require.Equal(t, "sixteen bytes...!", string(mem[16:33]))
			was := uint64(1)
			if halves == 2 {
				was = 0
			}
			require.Equal(t, was, replacedOf(p.a), fmt.Sprint(p.e.Info()))

			again, err := p.a.NewEndpoint(p.b.Address(), EndpointConfig{})
			require.NoError(t, err)
			k, err := again.UnpackKey(p.m.Key())
			require.NoError(t, err)
			f := k.GetUint64(8)
			p.until(f.Done)
			v, err := f.Wait(p.ctx)
			require.NoError(t, err)
			require.EqualValues(t, 42, v)
			require.Len(t, again.Info().Lanes, 1)
			require.Equal(t, was, replacedOf(p.a), "it has the same lane")
		})
	}
}

// Where nothing else is left, the endpoint fails, and says why.
func TestNothingToReplaceBy(t *testing.T) {
	p := newIdlePairOver(t, crowded(2)[:1], 64)
	err := p.wait(p.e.TagSend([]byte("hello"), 1))
	require.ErrorIs(t, err, ErrUnreachable)
	require.NotErrorIs(t, err, ErrPeerFailed, "it lives")
	require.ErrorContains(t, err, "create queue pair")
}

// A device that takes less inline than rc wants is refused for it, by name.
func TestLittleInline(t *testing.T) {
	p := newPairOver(t, poor(soft.Config{MaxInline: 32}), 64)
	require.Equal(t, "ud", p.e.Info().Lanes[0].Transport)
	require.Contains(t, fmt.Sprint(p.a.Refused()), "32 bytes of inline data")
}
