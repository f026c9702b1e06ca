package ucp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
)

const lenderEnv = "GOUCX_TEST_LENDER"

// TestLenderProcess is the other process of the tests below: it lends allocated
// and registered memory, says where, and obeys.
func TestLenderProcess(t *testing.T) {
	if os.Getenv(lenderEnv) == "" {
		return // runs in a process of its own
	}
	c, err := ucp.Open(ucp.Config{Providers: transports.All()})
	require.NoError(t, err)
	w, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	go func() { _ = w.Run(context.Background()) }()
	a, err := c.Allocate(1<<20, ucp.MemConfig{})
	require.NoError(t, err)
	r, err := c.Register(make([]byte, 1<<20), ucp.MemConfig{})
	require.NoError(t, err)
	fmt.Printf("lend %x %x %x\n", []byte(w.Address()), []byte(a.Key()), []byte(r.Key()))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "load":
			fmt.Printf("loaded %x\n", a.Bytes()[:8])
		case "close":
			err := a.Close()
			fmt.Println("closed", err)
		case "close registered":
			err := r.Close()
			fmt.Println("closed", err)
		case "count": // on the registered memory, directly
			e, err := w.NewEndpoint(w.Address(), ucp.EndpointConfig{})
			require.NoError(t, err)
			k, err := e.UnpackKey(r.Key())
			require.NoError(t, err)
			count(t, k, ownCounts)
			require.NoError(t, e.Flush().Wait(context.Background()))
			fmt.Println("counted")
		}
	}
}

// lender is the other process as the tests see it.
type lender struct {
	t             *testing.T
	cmd           *exec.Cmd
	in            io.Writer
	out           *bufio.Reader
	address, a, r []byte
}

func startLender(t *testing.T) *lender {
	t.Helper()
	l := &lender{t: t, cmd: exec.Command(os.Args[0], "-test.run=^TestLenderProcess$")}
	l.cmd.Env = append(os.Environ(), lenderEnv+"=1")
	l.cmd.Stderr = os.Stderr
	var err error
	l.in, err = l.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := l.cmd.StdoutPipe()
	require.NoError(t, err)
	l.out = bufio.NewReader(out)
	require.NoError(t, l.cmd.Start())
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill()
		_ = l.cmd.Wait()
	})
	f := strings.Fields(l.line("lend"))
	require.Len(t, f, 4)
	for i, p := range []*[]byte{&l.address, &l.a, &l.r} {
		*p, err = hex.DecodeString(f[i+1])
		require.NoError(t, err)
	}
	return l
}

// line reads the next line of output that starts with word.
func (l *lender) line(word string) string {
	l.t.Helper()
	for {
		s, err := l.out.ReadString('\n')
		require.NoError(l.t, err)
		if strings.HasPrefix(s, word) {
			return strings.TrimSpace(s)
		}
	}
}

func (l *lender) ask(what, answer string) string {
	l.t.Helper()
	_, err := fmt.Fprintln(l.in, what)
	require.NoError(l.t, err)
	return l.line(answer)
}

func TestMemoryOfAnotherProcess(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := startLender(t)
	c, err := ucp.Open(ucp.Config{Providers: transports.All()})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	e, err := w.NewEndpoint(l.address, ucp.EndpointConfig{})
	require.NoError(t, err)
	k, err := e.UnpackKey(l.a)
	require.NoError(t, err)

	for _, n := range []int{1, 8, 1000, 1 << 20} {
		want, got := pattern(n), make([]byte, n)
		require.NoError(t, k.Put(want, 0).Wait(ctx))
		require.NoError(t, e.Flush().Wait(ctx))
		assert.Equal(t, hex.EncodeToString(want[:min(n, 8)]), l.ask("load", "loaded")[7:][:2*min(n, 8)])
		require.NoError(t, k.Get(got, 0).Wait(ctx))
		require.Equal(t, want, got)
	}
	a, err := ucp.AtomicAt[uint64](k, 1024)
	require.NoError(t, err)
	old, err := a.Swap(5).Wait(ctx)
	require.NoError(t, err)
	assert.NotZero(t, old)
	old, err = a.CompareAndSwap(5, 6).Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, uint64(5), old)
	b, err := k.Bytes()
	require.NoError(t, err)
	require.Len(t, b, 1<<20)
	b[0] = 0xee
	assert.Contains(t, l.ask("load", "loaded"), "loaded ee")

	t.Run("registered", func(t *testing.T) {
		k, err := e.UnpackKey(l.r)
		if err != nil { // copies between processes may be forbidden here; then that is said
			require.ErrorIs(t, err, ucp.ErrUnreachable)
			t.Log(err)
			return
		}
		want, got := pattern(1<<20), make([]byte, 1<<20)
		require.NoError(t, k.Put(want, 0).Wait(ctx))
		require.NoError(t, k.Get(got, 0).Wait(ctx))
		require.True(t, bytes.Equal(want, got))
		_, err = k.Bytes()
		require.ErrorIs(t, err, ucp.ErrUnsupported)
		_, err = ucp.AtomicAt[uint64](k, 0)
		require.NoError(t, err, "another transport, or the owner's worker")
	})

	assert.Equal(t, "closed <nil>", l.ask("close", "closed"))
	require.ErrorIs(t, k.Put(pattern(8), 0).Wait(ctx), ucp.ErrRemoteAccess)
	require.ErrorIs(t, k.Get(pattern(100), 0).Wait(ctx), ucp.ErrRemoteAccess)
	require.ErrorIs(t, a.Add(1).Wait(ctx), ucp.ErrRemoteAccess)
	_, err = e.UnpackKey(l.a)
	require.ErrorIs(t, err, ucp.ErrRemoteAccess)
}

// The owner's death fails the endpoint, and with it every operation by its keys;
// what was mapped stays so, and nothing faults.
func TestOwnerDies(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := startLender(t)
	c, err := ucp.Open(ucp.Config{Providers: transports.All()})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	failed := false
	e, err := w.NewEndpoint(l.address, ucp.EndpointConfig{OnFailure: func(ucp.Endpoint, error) { failed = true }})
	require.NoError(t, err)
	k, err := e.UnpackKey(l.a)
	require.NoError(t, err)
	a, err := ucp.AtomicAt[uint64](k, 0)
	require.NoError(t, err)
	b, err := k.Bytes()
	require.NoError(t, err)
	require.NoError(t, k.PutUint64(7, 8).Wait(ctx))
	// The peer must have accepted us, or its death is that of a stranger.
	require.NoError(t, e.TagSend([]byte("hello"), 1).Wait(ctx))
	require.NoError(t, e.Flush().Wait(ctx))

	require.NoError(t, l.cmd.Process.Kill())
	for !failed {
		require.NoError(t, ctx.Err())
		k.PutUint64(9, 8) // while it dies
		w.Progress()
	}
	require.ErrorIs(t, k.PutUint64(1, 0).Wait(ctx), ucp.ErrPeerFailed)
	require.ErrorIs(t, k.Put(pattern(1000), 0).Wait(ctx), ucp.ErrPeerFailed)
	require.ErrorIs(t, k.Get(pattern(8), 0).Wait(ctx), ucp.ErrPeerFailed)
	require.ErrorIs(t, a.Add(1).Wait(ctx), ucp.ErrPeerFailed)
	_, err = a.FetchAdd(1).Wait(ctx)
	require.ErrorIs(t, err, ucp.ErrPeerFailed)
	b[100] = 1 // still mapped
	require.NoError(t, k.Close())
	require.NoError(t, e.Close())
}
