//go:build linux

package test

// Hostile processes attack a victim, which exchanges messages with honest peers meanwhile: forged
// and mutated datagrams, floods of connection requests, sockets that are opened and not used,
// descriptors that are made blocking, names that are taken before. This file is the victim and
// the honest peers; hostile_datagrams_test.go builds and sends the datagrams from the documents of
// docs/wire. A failure prints the seed.
//
//	go test ./test -run 'Forged|Flood|Mutated|Blocked|Sockets|Planted'
//	go test ./test -run Mutated -hostile.seed=4711  # the same datagrams again

import (
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

var flagSeed = flag.Uint64("hostile.seed", 0, "what hostile processes send; 0: random")

func seedOf(t *testing.T) uint64 {
	seed := *flagSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	return seed
}

// attackTime is the duration of an attack.
func attackTime() time.Duration {
	if long() {
		return 15 * time.Second
	}
	return time.Second
}

// Tags of messages to the victim.
const (
	tagCheck ucp.Tag = iota + 1 // matched at once
	tagLate                     // matched when the test requests it
)

// mostChecked is the length of the longest message to the victim.
const mostChecked = 64 << 10

// checked is a message of n bytes that the victim accepts.
func checked(n int) []byte {
	p := make([]byte, n)
	fill(p, 0, 0)
	return p
}

// roleVictim exposes memory, and receives messages and checks them, until the test is gone.
func roleVictim(p *parent) {
	c := ucp.Config{}
	if os.Getenv("UCX_STATS_DEST") != "" { // the test reads the warning
		c.Log = must(zap.NewProduction())
	}
	x := must(goucx.Open(c))
	w := must(x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadMulti}))
	p.say(hex.EncodeToString(w.Address()), hex.EncodeToString(must(x.Allocate(4096, ucp.MemConfig{})).Key()))
	ctx := context.Background()
	go func() {
		for p.hear() == "match" {
			must(w.TagRecv(make([]byte, messageHead), tagLate, allBits).Wait(ctx))
			p.say("matched")
		}
	}()
	buf := make([]byte, mostChecked)
	for {
		m := must(w.TagRecv(buf, tagCheck, allBits).Wait(ctx))
		_, _, err := read(buf[:m.Len])
		check(err)
	}
}

// victim is the process under attack.
type victim struct {
	*process
	address, key string
}

func startVictim(t *testing.T, change ...func(*exec.Cmd)) *victim {
	t.Helper()
	v := &victim{process: start(t, "victim", change...)}
	v.scan(&v.address, &v.key)
	return v
}

// memory is the resident memory in bytes.
func (v *victim) memory() int {
	v.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", v.cmd.Process.Pid))
	require.NoError(v.t, err)
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	require.NoError(v.t, err)
	return pages * os.Getpagesize()
}

// honestPeer is an honest process with an endpoint to the victim.
type honestPeer struct {
	*node
	e ucp.Endpoint
}

func (v *victim) honest() *honestPeer {
	v.t.Helper()
	n := open(v.t, ucp.ThreadSingle)
	return &honestPeer{n, n.dial(v.t, v.address)}
}

// send sends messages of several sizes and waits until the victim has matched them.
func (p *honestPeer) send(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, n := range []int{messageHead, 3000, mostChecked} {
		require.NoError(t, p.e.TagSendSync(checked(n), tagCheck).Wait(ctx))
	}
}

// newcomers opens honest peers one after another for a while, at least five. It requires that
// each one's first message arrives, half of them soon: each within a second where the machine is
// idle. Then each uses the victim's memory.
func (v *victim) newcomers(during time.Duration) {
	v.t.Helper()
	var took []time.Duration
	for began := time.Now(); time.Since(began) < during || len(took) < 5; {
		n, err := newNode(ucp.ThreadSingle, patience)
		require.NoError(v.t, err)
		e := n.dial(v.t, v.address)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		at := time.Now()
		require.NoError(v.t, e.TagSendSync(checked(messageHead), tagCheck).Wait(ctx))
		took = append(took, time.Since(at))
		k, err := n.unpack(e, v.key)
		require.NoError(v.t, err)
		require.NoError(v.t, k.PutUint64(1, 0).Wait(ctx))
		cancel()
		require.NoError(v.t, k.Close())
		require.NoError(v.t, e.Close())
		require.NoError(v.t, n.x.Close())
	}
	slices.Sort(took)
	v.t.Logf("%d honest peers connected within %v, the last within %v", len(took), took[len(took)/2], took[len(took)-1])
	require.Less(v.t, took[len(took)/2], 3*time.Second)
	require.Less(v.t, took[len(took)-1], 10*time.Second, "strangers must not keep honest peers out for 20 s")
}

// overLoopback restricts the test and its processes to a transport on loopback.
func overLoopback(t *testing.T, transport string) {
	t.Setenv(tlsEnv, "self,"+transport)
	t.Setenv("UCX_NET_DEVICES", "lo")
}
