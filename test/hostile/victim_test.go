//go:build linux

package hostile

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

// Tags of messages to the victim.
const (
	tagCheck ucp.Tag = iota + 1 // matched at once
	tagLate                     // matched when the test says so
)

const longest = 64 << 10

// content is the only content of a message of n bytes.
func content(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)}).Read(b) //nolint:errcheck // never fails
	return b
}

// roleVictim receives messages and checks them, until the test is gone.
func roleVictim(p *parent) {
	c := ucp.Config{}
	if os.Getenv("UCX_STATS_DEST") != "" { // the test reads the warning
		c.Log = must(zap.NewProduction())
	}
	x := must(goucx.Open(c))
	w := must(x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadMulti}))
	p.say(hex.EncodeToString(w.Address()))
	ctx := context.Background()
	go func() {
		for p.hear() == "match" {
			must(w.TagRecv(make([]byte, 8), tagLate, ^ucp.Tag(0)).Wait(ctx))
			p.say("matched")
		}
	}()
	buf := make([]byte, longest)
	for {
		m, err := w.TagRecv(buf, tagCheck, ^ucp.Tag(0)).Wait(ctx)
		if err == nil && !bytes.Equal(buf[:m.Len], content(m.Len)) {
			err = fmt.Errorf("wrong content in %d bytes", m.Len)
		}
		check(err)
	}
}

// victim is the process under attack.
type victim struct {
	*process
	address []byte
}

func startVictim(t *testing.T, change ...func(*exec.Cmd)) *victim {
	t.Helper()
	v := &victim{process: start(t, "victim", change...)}
	var err error
	v.address, err = hex.DecodeString(v.hear())
	require.NoError(t, err)
	return v
}

// peer is an honest process's context and worker, with an endpoint to the victim.
type peer struct {
	x *ucp.Context
	w *ucp.Worker
	e ucp.Endpoint
}

func dial(address []byte) (*peer, error) {
	x, err := goucx.Open(ucp.Config{})
	if err != nil {
		return nil, err
	}
	p := &peer{x: x}
	if p.w, err = x.NewWorker(ucp.WorkerConfig{}); err == nil {
		p.e, err = p.w.NewEndpoint(address, ucp.EndpointConfig{})
	}
	return p, err
}

// honest opens a peer.
func (v *victim) honest() *peer {
	v.t.Helper()
	p, err := dial(v.address)
	require.NoError(v.t, err)
	v.t.Cleanup(func() { _ = p.x.Close() })
	return p
}

// send sends messages of several sizes and waits until the victim has matched them.
func (p *peer) send(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, n := range []int{8, 3000, longest} {
		require.NoError(t, p.e.TagSendSync(content(n), tagCheck).Wait(ctx))
	}
}

// newcomers opens honest peers one after another for a while, at least five. It requires that
// each one's first message arrives, half of them soon: each within a
// second where the machine is idle.
func (v *victim) newcomers(during time.Duration) {
	v.t.Helper()
	var took []time.Duration
	for began := time.Now(); time.Since(began) < during || len(took) < 5; {
		p, err := dial(v.address)
		require.NoError(v.t, err)
		ctx, cancel := context.WithTimeout(v.t.Context(), patience)
		at := time.Now()
		require.NoError(v.t, p.e.TagSendSync(content(8), tagCheck).Wait(ctx))
		took = append(took, time.Since(at))
		cancel()
		require.NoError(v.t, p.e.Close())
		require.NoError(v.t, p.x.Close())
	}
	slices.Sort(took)
	v.t.Logf("%d honest peers connected within %v, the last within %v", len(took), took[len(took)/2], took[len(took)-1])
	require.Less(v.t, took[len(took)/2], 3*time.Second)
	require.Less(v.t, took[len(took)-1], 10*time.Second, "strangers must not keep honest peers out for 20 s")
}

// over restricts the test and its processes to a transport on loopback.
func over(t *testing.T, tls ...string) {
	t.Setenv("UCX_TLS", "self,"+strings.Join(tls, ","))
	t.Setenv("UCX_NET_DEVICES", "lo")
}
