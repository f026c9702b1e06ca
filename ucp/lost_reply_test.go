package ucp

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/rc"
	"github.com/goucx/goucx/transports/ud"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
	"github.com/goucx/goucx/verbs/wire"
	"github.com/goucx/goucx/wireup/machine"
)

// A connection ends at one side alone, in an outage. Where that side connects anew, the
// other one still has what it answered by: what it says there is lost. Who asks has his
// answer all the same; where the word that tells of the end is lost, too, he hears that
// the connection failed. He does not wait for ever.
func TestAnswersAfterAnOutage(t *testing.T) {
	for _, tr := range []struct {
		name  string
		on    func(func(*config.Set, *zap.Logger) []verbs.Provider) uct.Component
		env   []string
		tells func(payload []byte) bool // that a connection is over
	}{
		{
			"rc", func(ps func(*config.Set, *zap.Logger) []verbs.Provider) uct.Component { return rc.Component(ps) },
			[]string{"UCX_RC_TIMEOUT=5ms", "UCX_RC_RETRY_COUNT=3", "UCX_RC_KEEPALIVE_INTERVAL=2s"},
			func(b []byte) bool { return machine.MsgKind(b[1]) == machine.MsgReset },
		},
		{
			"ud", func(ps func(*config.Set, *zap.Logger) []verbs.Provider) uct.Component { return ud.Component(ps) },
			[]string{"UCX_UD_TIMEOUT=300ms", "UCX_UD_KEEPALIVE_INTERVAL=2s"},
			func(b []byte) bool {
				h, ok := arq.Parse(b)
				return ok && h.Kind() == arq.Control && h.ID() == arq.Reset
			},
		},
	} {
		for name, told := range map[string]bool{" told": true, " mute": false} {
			t.Run(tr.name+name, func(t *testing.T) {
				var dark, mute atomic.Bool
				var lost atomic.Int32
				hook := func(p *soft.PacketInfo) soft.Verdict {
					if mute.Load() && !p.Received && p.Op == wire.UDSendOnly && tr.tells(p.Packet.Payload) {
						lost.Add(1)
						return soft.Verdict{Drop: true}
					}
					return soft.Verdict{Drop: dark.Load()}
				}
				sw := soft.NewSwitch()
				ps := func(_ *config.Set, log *zap.Logger) []verbs.Provider {
					return []verbs.Provider{soft.New(soft.Config{Link: soft.LinkInproc, Switch: sw, Faults: &soft.Faults{Hook: hook}, Log: log})}
				}
				p := newIdlePairOver(t, []uct.Component{tr.on(ps)}, 64, tr.env...)
				var cancel func()
				p.ctx, cancel = context.WithTimeout(p.ctx, 20*time.Second)
				defer cancel()
				ask := func(v uint64) (uint64, error) {
					f := p.word(0).FetchXor(v)
					p.until(f.Done)
					return f.Wait(p.ctx)
				}
				_, err := ask(1)
				require.NoError(t, err)
				p.must(p.b.Flush()) // its answer has arrived: nothing of its own is under way
				dark.Store(true)
				_, err = ask(2)
				require.ErrorIs(t, err, ErrPeerFailed)
				p.until(func() bool { return p.e.Info().Err != nil })
				mute.Store(!told)
				dark.Store(false)
				p.e, err = p.a.NewEndpoint(p.b.Address(), EndpointConfig{})
				require.NoError(t, err)
				p.k, err = p.e.UnpackKey(p.m.Key())
				require.NoError(t, err)
				v, err := ask(4)
				if told {
					require.NoError(t, err)
					require.EqualValues(t, 1, v)
					return
				}
				require.Positive(t, lost.Load(), "%v %v", v, err)
				require.ErrorIs(t, err, ErrPeerFailed)
				mute.Store(false)
				for err != nil {
					p.e, err = p.a.NewEndpoint(p.b.Address(), EndpointConfig{})
					require.NoError(t, err)
					p.k, err = p.e.UnpackKey(p.m.Key())
					require.NoError(t, err)
					v, err = ask(8)
				}
				require.EqualValues(t, 5, v)
			})
		}
	}
}
