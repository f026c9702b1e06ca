package ucptest

import (
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// darkness is who is not heard.
type darkness struct {
	name string
	from [2]bool
}

// darknesses are all that there are; in the long form alone.
func darknesses() []darkness {
	if os.Getenv("GOUCX_TEST_LONG") == "" {
		return nil
	}
	return []darkness{{"both ways", [2]bool{true, true}}, {"there", [2]bool{0: true}}, {"back", [2]bool{1: true}}}
}

// night is two workers, each with a device of its own, whose packets are lost where
// it is dark. One goroutine drives them.
type night struct {
	*testing.T
	xs      [2]*ucp.Context
	ws      [2]*ucp.Worker
	flows   [2]*flow   // from each
	fails   [2][]error // told of each one's endpoint
	dark    [2]atomic.Bool
	tag     ucp.Tag   // of the flows
	endless time.Time // when a wait has failed
}

func nightfall(t *testing.T, transport string, env ...string) *night {
	n := &night{T: t, endless: time.Now().Add(5 * time.Minute)}
	sw := soft.NewSwitch()
	for i := range n.ws {
		faults := &soft.Faults{Hook: func(p *soft.PacketInfo) soft.Verdict {
			return soft.Verdict{Drop: !p.Received && n.dark[i].Load()}
		}}
		c := overDevices[transport](func(_ *config.Set, log *zap.Logger) []verbs.Provider {
			return []verbs.Provider{soft.New(soft.Config{Link: soft.LinkInproc, Switch: sw, Faults: faults, Log: log})}
		})
		f := Factory{Env: env, Providers: []uct.Component{c}}
		x, err := f.open(ucp.Config{CloseTimeout: time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, x.Close()) })
		n.xs[i] = x
		n.ws[i], err = x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
		require.NoError(t, err)
	}
	n.connect()
	return n
}

// connect opens a flow each way, of which the first message has arrived.
func (n *night) connect() {
	n.tag++
	for i := range n.ws {
		e, err := n.ws[i].NewEndpoint(n.ws[1-i].Address(), ucp.EndpointConfig{OnFailure: func(_ ucp.Endpoint, err error) {
			n.fails[i] = append(n.fails[i], err)
		}})
		require.NoError(n, err)
		n.flows[i] = &flow{night: n, e: e, to: n.ws[1-i]}
	}
	n.until(func() bool { return n.move(1) })
}

func (n *night) cut(d darkness) {
	for i := range n.dark {
		n.dark[i].Store(d.from[i])
	}
}

// until drives both until cond holds.
func (n *night) until(cond func() bool) {
	n.Helper()
	for !cond() {
		n.ws[0].Progress()
		n.ws[1].Progress()
		require.True(n, time.Now().Before(n.endless), "waited too long")
	}
}

// move sends and receives both flows up to that many messages, as far as it goes,
// and reports whether all have arrived and all sends ended.
func (n *night) move(total uint64) bool {
	for _, f := range n.flows {
		f.move(total)
	}
	return n.flows[0].got == total && n.flows[1].got == total && len(n.flows[0].sends)+len(n.flows[1].sends) == 0
}

// flow is numbered messages one way, of lengths that take every path: one cell,
// fragments, rendezvous.
type flow struct {
	*night
	e         ucp.Endpoint
	to        *ucp.Worker
	sent, got uint64
	sends     []ucp.Request
	recv      ucp.RecvRequest
	buf       []byte
	failed    error // of a send or receive
}

const mostUnderWay = 50

func lengthOf(n uint64) int { return 8 + []int{0, 90, 3000, 20_000, 60_000}[n%5] }

func (f *flow) move(total uint64) {
	for len(f.sends) > 0 && f.sends[0].Done() {
		if err := f.sends[0].Err(); err != nil && f.failed == nil {
			f.failed = err
		}
		f.sends = f.sends[1:]
	}
	for f.sent < total && len(f.sends) < mostUnderWay && f.failed == nil {
		p := pattern(lengthOf(f.sent), byte(f.sent))
		binary.LittleEndian.PutUint64(p, f.sent)
		f.sends = append(f.sends, f.e.TagSend(p, f.tag))
		f.sent++
	}
	for f.got < total && (f.failed == nil || f.buf != nil) {
		if f.buf == nil {
			f.buf = make([]byte, lengthOf(f.got)+1)
			f.recv = f.to.TagRecv(f.buf, f.tag, exact)
		}
		if !f.recv.Done() {
			return
		}
		m, err := f.recv.Wait(f.Context())
		if err != nil { // the rest of its message does not come
			f.failed, f.buf = err, nil
			return
		}
		want := pattern(lengthOf(f.got), byte(f.got))
		binary.LittleEndian.PutUint64(want, f.got)
		require.EqualValues(f, len(want), m.Len, "message %d", f.got)
		require.Equal(f, want, f.buf[:len(want)], "message %d", f.got)
		f.got, f.buf = f.got+1, nil
	}
}

// TestBlackout: endpoints outlive a time in which nothing comes through, under way
// or not, with what they are by default: ten seconds. Then all arrives, once and in
// order.
func TestBlackout(t *testing.T) {
	const lasts, total = 10 * time.Second, 1000
	for transport := range overDevices {
		for _, d := range darknesses() {
			t.Run(transport+" "+d.name, func(t *testing.T) {
				t.Parallel()
				n := nightfall(t, transport)
				move := func(total uint64) bool {
					done := n.move(total)
					require.NoError(t, errors.Join(n.flows[0].failed, n.flows[1].failed))
					return done
				}
				n.until(func() bool { move(total / 2); return n.flows[0].got > total/5 && n.flows[1].got > total/5 })
				n.cut(d)
				light := time.Now().Add(lasts)
				n.until(func() bool { move(total); return time.Now().After(light) })
				for i, f := range n.flows {
					require.False(t, d.from[i] && f.got > total/2, "it came through the dark")
				}
				n.cut(darkness{})
				n.until(func() bool { return move(total) })
				for i, f := range n.flows {
					require.Empty(t, n.fails[i])
					_, more := f.to.TagProbe(0, 0)
					require.False(t, more, "something came twice")
				}
			})
		}
	}
}

// TestImpatientInBlackout: endpoints that are told to wait for less end by name, each
// once, and everything that they had to do. Others are made when the link is back.
func TestImpatientInBlackout(t *testing.T) {
	env := []string{
		"UCX_RC_TIMEOUT=50ms", "UCX_RC_RETRY_COUNT=3", "UCX_RC_KEEPALIVE_INTERVAL=100ms",
		"UCX_UD_TIMEOUT=1s", "UCX_UD_KEEPALIVE_INTERVAL=100ms",
	}
	for transport := range overDevices {
		for _, d := range darknesses() {
			t.Run(transport+" "+d.name, func(t *testing.T) {
				t.Parallel()
				n := nightfall(t, transport, env...)
				n.cut(d)
				n.until(func() bool {
					n.move(1000)
					return len(n.fails[0]) > 0 && len(n.fails[1]) > 0 && len(n.flows[0].sends)+len(n.flows[1].sends) == 0
				})
				for i, f := range n.flows {
					require.Len(t, n.fails[i], 1)
					require.ErrorIs(t, n.fails[i][0], ucp.ErrPeerFailed)
					require.ErrorIs(t, f.failed, ucp.ErrPeerFailed)
					require.NoError(t, f.e.Close())
					if f.buf != nil {
						f.recv.Cancel()
						f.recv.Drop()
					}
				}
				n.cut(darkness{})
				n.fails = [2][]error{}
				n.connect()
				n.until(func() bool { return n.move(100) })
				require.Equal(t, [2][]error{}, n.fails)
			})
		}
	}
}

// TestAnswerBehindAnAbort: who answers by a connection of his own, and gives up his
// endpoint on it before the answer has arrived, keeps it until then: where it is lost in
// the dark the asker hears of a failure. The connection that he asked by is as good as
// before.
func TestAnswerBehindAnAbort(t *testing.T) {
	for transport, env := range map[string][]string{
		"rc": {"UCX_RC_TIMEOUT=5ms", "UCX_RC_RETRY_COUNT=3", "UCX_RC_KEEPALIVE_INTERVAL=3s"},
		"ud": {"UCX_UD_TIMEOUT=300ms", "UCX_UD_KEEPALIVE_INTERVAL=3s"},
	} {
		t.Run(transport, func(t *testing.T) {
			n := nightfall(t, transport, env...)
			n.endless = time.Now().Add(30 * time.Second)
			a, b := n.flows[0].e, n.ws[1]
			flush := n.flows[1].e.Flush()
			n.until(flush.Done)
			require.NoError(t, n.flows[1].e.Close()) // what a sends by goes one way now
			ask := func() ucp.Request {
				q := a.TagSendSync([]byte{1}, 7)
				n.until(func() bool { _, there := b.TagProbe(7, exact); return there })
				return q
			}
			q := ask()
			b.TagRecv(make([]byte, 8), 7, exact).Drop()
			n.until(q.Done)
			require.NoError(t, q.Err())
			e, err := b.NewEndpoint(n.ws[0].Address(), ucp.EndpointConfig{})
			require.NoError(t, err)
			e.TagSend([]byte{1}, 9) // it holds what b answers by
			flush = e.Flush()
			n.until(flush.Done)
			require.NoError(t, flush.Err())

			q = ask()
			n.drive(50 * time.Millisecond) // a's device knows that all has arrived
			n.cut(darkness{from: [2]bool{1: true}})
			b.TagRecv(make([]byte, 8), 7, exact).Drop()
			e.Abort(nil)
			n.drive(time.Second)
			n.cut(darkness{})
			n.until(q.Done)
			require.ErrorIs(t, q.Err(), ucp.ErrPeerFailed)
		})
	}
}

// drive has both make progress for that long.
func (n *night) drive(d time.Duration) {
	end := time.Now().Add(d)
	n.until(func() bool { return time.Now().After(end) })
}

// TestReasonOfFailure: each operation that waits when its endpoint fails ends with the
// reason that OnFailure gets, however its outcome is read, and holds its buffer no longer.
func TestReasonOfFailure(t *testing.T) {
	for transport, env := range map[string][]string{
		"rc": {"UCX_RC_TIMEOUT=5ms", "UCX_RC_RETRY_COUNT=3", "UCX_RC_KEEPALIVE_INTERVAL=3s"},
		"ud": {"UCX_UD_TIMEOUT=300ms", "UCX_UD_KEEPALIVE_INTERVAL=3s"},
	} {
		t.Run(transport, func(t *testing.T) {
			n := nightfall(t, transport, env...)
			n.endless = time.Now().Add(30 * time.Second)
			m, err := n.xs[1].Allocate(4096, ucp.MemConfig{})
			require.NoError(t, err)
			e := n.flows[0].e
			k, err := e.UnpackKey(m.Key())
			require.NoError(t, err)
			n.cut(darkness{from: [2]bool{true, true}})
			var b buffers
			var told []error
			note := func(c ucp.Completion) { told = append(told, c.Err) }
			rs := map[string]ucp.Request{
				"a put":              k.Put(b.make(4096), 0),
				"a get":              k.Get(b.make(4096), 0),
				"a synchronous send": e.TagSendSync(b.make(100), 7),
				"an announced send":  e.TagSend(b.make(300_000), 7),
				"a flush":            e.Flush(),
				"a worker's flush":   n.ws[0].Flush(),
				"a flush behind it":  e.Flush(),
			}
			for _, r := range []ucp.Request{e.TagSendSync(b.make(100), 7), k.Get(b.make(4096), 0), e.Flush(), n.ws[0].Flush()} {
				require.True(t, r.Notify(note, 0))
			}
			n.until(func() bool { return len(n.fails[0]) > 0 && len(told) == 4 })
			reason := n.fails[0][0]
			require.ErrorIs(t, reason, ucp.ErrPeerFailed)
			require.NotEqual(t, ucp.ErrPeerFailed, reason, "it says why")
			for name, r := range rs {
				n.until(r.Done)
				if name != "a put" || r.Err() != nil { // what was copied ended well
					require.ErrorIs(t, r.Err(), reason, name)
				}
			}
			for i, err := range told {
				require.ErrorIs(t, err, reason, "callback %d", i)
			}
			require.ErrorIs(t, e.Flush().Err(), reason)
			b.gone(t, slack*time.Second, n.drive)
			for i := range n.flows { // closing waits for nobody
				n.flows[i].e.Abort(nil)
			}
		})
	}
}
