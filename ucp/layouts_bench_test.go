package ucp_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

const answererEnv = "GOUCX_TEST_ANSWERER"

// TestAnswererProcess is the other process of BenchmarkLayouts: one goroutine replies to each active
// message with a tag message.
func TestAnswererProcess(t *testing.T) {
	transport := os.Getenv(answererEnv)
	if transport == "" {
		return // runs in a process of its own
	}
	c, err := ucp.Open(ucp.Config{Providers: provider(transport)})
	require.NoError(t, err)
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	require.NoError(t, w.HandleAM(1, func(m *ucp.AM) {
		m.From.TagSendUint64(0, ucp.Tag(binary.LittleEndian.Uint64(m.Data)))
	}))
	fmt.Printf("answers %x\n", []byte(w.Address()))
	_ = w.Run(t.Context())
}

// layout is a way to share workers among goroutines that ask and wait for the answer.
type layout struct {
	name    string
	mode    ucp.ThreadMode
	workers int // 0: one for each goroutine
	runs    bool
	polls   bool // Done in a loop instead of Wait, and Progress if no goroutine runs the worker
}

var layouts = []layout{
	{name: "one worker", mode: ucp.ThreadMulti, workers: 1},
	{name: "one worker, a goroutine in Run", mode: ucp.ThreadMulti, workers: 1, runs: true},
	{name: "one worker, Done is polled", mode: ucp.ThreadMulti, workers: 1, polls: true},
	{name: "one worker, a goroutine in Run, Done is polled", mode: ucp.ThreadMulti, workers: 1, runs: true, polls: true},
	{name: "two workers", mode: ucp.ThreadMulti, workers: 2},
	{name: "a multi worker each", mode: ucp.ThreadMulti},
	{name: "a single worker each", mode: ucp.ThreadSingle},
}

// BenchmarkLayouts is the table of docs/threads.md: the rate at which n goroutines ask another
// process and wait for each answer, by the layout of their workers.
func BenchmarkLayouts(b *testing.B) {
	for _, transport := range []string{"shm", "rc"} {
		for _, n := range []int{1, 16, 1000} {
			for _, l := range layouts {
				b.Run(fmt.Sprintf("%s/%d/%s", transport, n, l.name), func(b *testing.B) { l.bench(b, transport, n) })
			}
		}
	}
}

func (l layout) bench(b *testing.B, transport string, n int) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	address := startAnswerer(b, transport)
	c, err := ucp.Open(ucp.Config{Providers: provider(transport)})
	require.NoError(b, err)
	workers := make([]*ucp.Worker, l.workers)
	if l.workers == 0 {
		workers = make([]*ucp.Worker, n)
	}
	eps := make([]ucp.Endpoint, len(workers))
	var running sync.WaitGroup
	for i := range workers {
		workers[i], err = c.NewWorker(ucp.WorkerConfig{Mode: l.mode})
		require.NoError(b, err)
		eps[i], err = workers[i].NewEndpoint(address, ucp.EndpointConfig{})
		require.NoError(b, err)
		if l.runs {
			running.Go(func() { _ = workers[i].Run(ctx) })
		}
	}
	ask := func(g, times int) {
		w, e, in, out := workers[g%len(workers)], eps[g%len(eps)], make([]byte, 8), make([]byte, 8)
		binary.LittleEndian.PutUint64(out, uint64(g))
		for range times {
			r := w.TagRecv(in, ucp.Tag(g), exact)
			e.AMSendWith(1, nil, out, ucp.Opts{Flags: ucp.WantReply})
			for l.polls && !r.Done() {
				if !l.runs {
					w.Progress()
				}
				runtime.Gosched()
			}
			if _, err := r.Wait(ctx); err != nil {
				b.Error(err)
				return
			}
		}
	}
	all := func(times int) {
		var wg sync.WaitGroup
		for g := range n {
			wg.Go(func() { ask(g, times) })
		}
		wg.Wait()
	}
	all(1) // connects
	times := b.N/n + 1
	b.ResetTimer()
	all(times)
	b.StopTimer()
	b.ReportMetric(float64(n*times)/b.Elapsed().Seconds()/1e3, "k/s")
	cancel()
	running.Wait()
	require.NoError(b, c.Close())
}

// startAnswerer returns the address of a worker of another process.
func startAnswerer(b *testing.B, transport string) ucp.Address {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestAnswererProcess$")
	cmd.Env = append(os.Environ(), answererEnv+"="+transport)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	address, err := hex.DecodeString(strings.TrimSpace(strings.TrimPrefix(line, "answers ")))
	require.NoError(b, err)
	return address
}
