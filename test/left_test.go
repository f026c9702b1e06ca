//go:build linux

package test

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// TestLeftOrDead: peers close their worker or context, exit without Close, are killed, or stay. The
// survivor's endpoints and tied receives fail with ErrPeerClosed for the first two, with
// ErrPeerFailed alone for the next two, and not at all for the last.
func TestLeftOrDead(t *testing.T) {
	for _, tl := range []string{"shm", "rc", "ud"} {
		t.Run(tl, func(t *testing.T) {
			t.Setenv(tlsEnv, tl)
			n, ctx := open(t, ucp.ThreadSingle), bounded(t)
			hows := []string{"close the worker", "close the context", "exit", "kill", "stay"}
			reasons, tied := make([]error, len(hows)), make([]ucp.RecvRequest, len(hows))
			var ps []*process
			for i, how := range hows {
				p := start(t, "peer")
				p.say("leave at a word")
				a, err := hex.DecodeString(p.hear())
				require.NoError(t, err)
				e, err := n.w.NewEndpoint(a, ucp.EndpointConfig{OnFailure: func(_ ucp.Endpoint, err error) {
					assert.NoError(t, reasons[i], "%s: OnFailure was called before", how)
					reasons[i] = err
				}})
				require.NoError(t, err)
				p.say(n.address())
				p.say("go")
				p.expect("here")
				require.NoError(t, e.TagSend([]byte(how), tagPing).Wait(ctx))
				require.NoError(t, e.Flush().Wait(ctx))
				tied[i] = n.w.TagRecv(make([]byte, 8), tagNever, allBits).Tie(e)
				ps = append(ps, p)
			}
			for i, how := range hows {
				switch how {
				case "kill":
					require.NoError(t, ps[i].cmd.Process.Kill())
				case "stay":
				default:
					ps[i].say(how)
				}
			}
			for i, how := range hows[:4] {
				_, err := tied[i].Wait(ctx)
				require.ErrorIs(t, err, ucp.ErrPeerFailed, how)
				for reasons[i] == nil {
					require.NoError(t, ctx.Err())
					n.w.Progress()
				}
				require.ErrorIs(t, err, reasons[i], how)
				if i < 2 {
					require.ErrorIs(t, reasons[i], ucp.ErrPeerClosed, how)
				} else {
					require.NotErrorIs(t, reasons[i], ucp.ErrPeerClosed, how)
				}
			}
			for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
				n.w.Progress()
			}
			require.NoError(t, reasons[4], "it lives")
			require.False(t, tied[4].Done())
			tied[4].Cancel()
		})
	}
}
