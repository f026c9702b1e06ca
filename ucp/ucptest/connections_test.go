package ucptest

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/verbs/soft"
)

// small has workers that take little memory, and say nothing twice.
var small = []string{
	"UCX_RC_RX_QUEUE_LEN=32", "UCX_RC_TX_QUEUE_LEN=16", "UCX_RC_TX_BUFS=16", "UCX_RC_CONNECT_RETRY=1m",
	"UCX_RC_CONNECT_TIMEOUT=60m", "UCX_RC_KEEPALIVE_INTERVAL=inf",
}

// connecting are factories whose connections are counted.
func connecting(t *testing.T, env ...string) []Factory {
	fs := []Factory{
		over(t, "shm", nil, nil, "shm"),
		over(t, "rc-inproc", nil, inproc, "rc"),
	}
	for i := range fs {
		fs[i].Env = slices.Concat(fs[i].Env, small, env)
	}
	return fs
}

// Endpoints connect at their first operation, or with UCX_CONNECT=eager when they
// are made.
func TestConnectSetting(t *testing.T) {
	for _, f := range connecting(t, "UCX_CONNECT=lazy") {
		t.Run(f.Column+" lazy", func(t *testing.T) {
			p := NewPair(t, f, ucp.ThreadSingle)
			p.Settle()
			assert.Zero(t, counted(p.A, "connected")+counted(p.B, "connected"))
			p.AB.TagSendUint64(1, 1)
			p.Until(func() bool { return counted(p.B, "accepted") == 1 })
			assert.EqualValues(t, 1, counted(p.A, "connected"))
			assert.Zero(t, counted(p.B, "connected"))
		})
	}
	for _, f := range connecting(t, "UCX_CONNECT=eager") {
		t.Run(f.Column+" eager", func(t *testing.T) {
			p := NewPair(t, f, ucp.ThreadSingle)
			c := p.NewWorker()
			p.Connect(p.A, c)
			p.Until(func() bool { return counted(c, "accepted") == 1 && len(p.AB.Info().Lanes) == 1 })
			assert.EqualValues(t, 2, counted(p.A, "connected"), "with nothing sent")
		})
	}
}

// The first message to a new peer is there after at most three round trips of
// connection messages, and so is the first answer.
func TestHandshakeIsShort(t *testing.T) {
	f := connecting(t)[1]
	p := NewPair(t, f, ucp.ThreadSingle)
	buf := make([]byte, 8)
	p.AB.TagSendUint64(1, 1)
	p.MustRecv(p.B.TagRecv(buf, 1, exact))
	a, b := counted(p.A, "notes"), counted(p.B, "notes")
	t.Logf("until the first message: %d connection messages of the sender, %d of the receiver", a, b)
	assert.LessOrEqual(t, max(a, b), uint64(3))
	p.BA.TagSendUint64(2, 2)
	p.MustRecv(p.A.TagRecv(buf, 2, exact))
	assert.LessOrEqual(t, max(counted(p.A, "notes"), counted(p.B, "notes")), uint64(3))
}

// Many workers of which each talks to eight: as many connections are made as pairs
// have talked, and as many accepted, however many endpoints there are.
func TestSparsePattern(t *testing.T) {
	const talks = 8
	for _, f := range connecting(t) {
		t.Run(f.Column, func(t *testing.T) {
			n := 67
			if os.Getenv("GOUCX_TEST_LONG") != "" && f.Column != "shm" { // whose connections take descriptors
				n = 1024
			}
			p := NewPair(t, f, ucp.ThreadSingle)
			ws := make([]*ucp.Worker, n)
			for i := range ws {
				ws[i] = p.NewWorker()
			}
			var received []ucp.RecvRequest
			// Who is heard of answers, so that each pair talks both ways.
			talk := func(from, to int) {
				tag := ucp.Tag(from*n + to)
				received = append(received, ws[to].TagRecv(make([]byte, 8), tag, exact))
				p.Connect(ws[from], ws[to]).TagSendUint64(uint64(tag), tag)
			}
			all := func() {
				for _, r := range received {
					p.MustRecv(r)
				}
				received = received[:0]
			}
			for i := range n {
				for k := 1; k <= 2*talks; k++ {
					p.Connect(ws[i], ws[(i+k)%n]) // most are never used
				}
				for k := 1; k <= talks; k++ {
					talk(i, (i+k*k)%n)
				}
			}
			all()
			for i := range n {
				for k := 1; k <= talks; k++ {
					talk((i+k*k)%n, i)
				}
			}
			all()
			connected, accepted := uint64(0), uint64(0)
			for _, w := range ws {
				connected += counted(w, "connected")
				accepted += counted(w, "accepted")
			}
			require.EqualValues(t, n*talks, connected)
			require.EqualValues(t, n*talks, accepted)
		})
	}
}

// TestManyUnderFaults: 40 workers talk to each other, all at once, over links that
// lose, double, reorder and corrupt what they carry, connection messages among it.
// Everything comes once, from each to each, in order. No peer counts as dead, however
// long the machine takes to post all the sends: nobody makes progress meanwhile.
func TestManyUnderFaults(t *testing.T) {
	const times = 3
	n, faults := 40, soft.Faults{Seed: 3, Loss: 0.005, Duplicate: 0.005, Reorder: 0.005, Corrupt: 0.005}
	if race.Enabled {
		n = 12
	}
	for _, f := range []Factory{
		simulated("rc-sim", nil, faults, overDevices["rc"]),
		simulated("ud-sim", nil, faults, overDevices["ud"]),
	} {
		t.Run(f.Column, func(t *testing.T) {
			f.Env = slices.Concat(f.Env, small, []string{"UCX_RC_CONNECT_RETRY=10ms", "UCX_RC_TIMEOUT=1s", "UCX_UD_TIMEOUT=60m"})
			p := NewPair(t, f, ucp.ThreadSingle)
			ws := make([]*ucp.Worker, n)
			for i := range ws {
				ws[i] = p.NewWorker()
			}
			type message struct {
				ucp.RecvRequest
				buf  []byte
				want uint64
			}
			var all []message
			for i := range n {
				for k := range n {
					if i == k {
						continue
					}
					e := p.Connect(ws[i], ws[k])
					for m := range times {
						buf, want := make([]byte, 8), uint64(i*n*times+k*times+m)
						all = append(all, message{ws[k].TagRecv(buf, ucp.Tag(i), exact), buf, want})
						e.TagSendUint64(want, ucp.Tag(i))
					}
				}
			}
			for _, m := range all {
				p.MustRecv(m.RecvRequest)
				require.Equal(t, m.want, binary.LittleEndian.Uint64(m.buf))
			}
			for _, w := range ws {
				_, more := w.TagProbe(0, 0)
				require.False(t, more, "something came twice")
			}
		})
	}
}
