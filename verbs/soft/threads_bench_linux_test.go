package soft

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
)

// loop is a connection of a device with itself in a thread domain of its own. One goroutine
// drives both ends.
type loop struct {
	cq  verbs.CQ
	qps [2]verbs.QP
	wrs []verbs.SendWR
}

const loopList = 32 // writes in a list

// newLoop opens a connection of c with itself; thread: in a thread domain.
func newLoop(t testing.TB, c verbs.Context, thread bool) *loop {
	l := &loop{wrs: make([]verbs.SendWR, loopList)}
	closes := func(f func() error) { t.Cleanup(func() { require.NoError(t, f()) }) }
	pd, err := c.AllocPD()
	require.NoError(t, err)
	closes(pd.Close)
	parent := pd
	conf := verbs.CQConfig{Depth: 64}
	if thread {
		td, err := c.AllocTD(verbs.TDConfig{})
		require.NoError(t, err)
		closes(td.Close)
		parent, err = pd.Parent(td)
		require.NoError(t, err)
		closes(parent.Close)
		conf.Domain = parent
	}
	mr, err := parent.Register(make([]byte, 4096), verbs.MRConfig{Access: verbs.LocalWrite | verbs.RemoteWrite})
	require.NoError(t, err)
	closes(mr.Close)
	l.cq, err = c.CreateCQ(conf)
	require.NoError(t, err)
	closes(l.cq.Close)
	for i := range l.qps {
		l.qps[i], err = parent.CreateQP(verbs.QPConfig{
			Type: verbs.RC, SendCQ: l.cq, RecvCQ: l.cq,
			Caps: verbs.QPCaps{MaxSend: 8 * loopList, MaxRecv: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 8},
		})
		require.NoError(t, err)
		closes(l.qps[i].Close)
	}
	gid, err := c.GID(1, 0)
	require.NoError(t, err)
	port, err := c.Port(1)
	require.NoError(t, err)
	for i := range l.qps {
		at := verbs.QPAttr{
			PathMTU: verbs.MTU4096, MaxRdAtomic: 1, MaxDestRdAtomic: 1, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
			PeerFeatures: verbs.PeerGoucx, Access: verbs.LocalWrite | verbs.RemoteWrite,
		}
		require.NoError(t, verbs.ConnectRC(l.qps[i], verbs.RemoteQP{
			AV: verbs.AHAttr{DGID: gid, DLID: port.LID, Port: 1}, QPN: l.qps[1-i].QPN(), MTU: at.PathMTU,
			MaxRdAtomic: 1, PeerFeatures: at.PeerFeatures,
		}, at))
	}
	for i := range l.wrs {
		l.wrs[i] = verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.SendInline, InlineLen: 8, Remote: mr.Addr() + uint64(8*i), RKey: mr.RKey()}
	}
	l.wrs[loopList-1].Flags |= verbs.SendSignaled
	return l
}

// run writes for a time and returns the number of writes, with up to four lists outstanding.
func (l *loop) run(d time.Duration) (writes int) {
	var wcs [8]verbs.WC
	lists := 0
	for end := ucs.Now().Add(d); ; {
		for k := range 256 {
			if n, st := l.qps[0].PostSend(l.wrs); n != loopList {
				panic(st.String())
			}
			for lists++; lists == 4 || k == 255 && lists > 0; {
				n := l.cq.Poll(wcs[:])
				for i := range n {
					if wcs[i].Status != verbs.WCSuccess {
						panic(wcs[i].Status.String())
					}
				}
				lists -= n
			}
		}
		if writes += 256 * loopList; ucs.Now() >= end {
			return writes
		}
	}
}

// onCPU runs f on a thread of its own that stays on one processor.
func onCPU(i int, f func()) {
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		_ = cpu.SetAffinity([]int{i % runtime.NumCPU()})
		f()
	})
	done.Wait()
}

const (
	threadsEnv    = "GOUCX_TEST_THREADS"
	threadsWindow = 100 * time.Millisecond
)

// TestThreadsProcess is one of the two programs of BenchmarkThreads. For each line that it reads
// it writes for one window, and prints how many writes these were.
func TestThreadsProcess(t *testing.T) {
	var i int
	if _, err := fmt.Sscan(os.Getenv(threadsEnv), &i); err != nil {
		return // runs in a process of its own
	}
	l := newLoop(t, opened(t, New(Config{Link: LinkInproc})), true)
	onCPU(i, func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			fmt.Println("writes", l.run(threadsWindow))
		}
	})
}

// threadsPeer is a process that runs TestThreadsProcess.
type threadsPeer struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

func startThreadsPeer(b *testing.B, i int) *threadsPeer {
	cmd := exec.Command(os.Args[0], "-test.run=^TestThreadsProcess$") //nolint:gosec // the test itself
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", threadsEnv, i))
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &threadsPeer{in, bufio.NewScanner(out)}
}

// BenchmarkThreads compares the rate of writes of eight bytes over the in-process link, inline and
// in lists of 32, of two threads in one program with that of two programs on the same processors.
// Each thread drives both ends of its own connection. The forms take turns in windows of 100 ms.
// The results are medians: the rate of each form, and its ratio to two programs in the same
// round.
func BenchmarkThreads(b *testing.B) {
	open := func() verbs.Context {
		c := opened(b, New(Config{Link: LinkInproc}))
		b.Cleanup(func() { require.NoError(b, c.Close()) })
		return c
	}
	shared, plain := open(), open()
	forms := []struct {
		name  string
		loops []*loop
	}{
		{"programs", nil},
		{"domains", []*loop{newLoop(b, shared, true), newLoop(b, shared, true)}}, // one context, a thread domain each
		{"contexts", []*loop{newLoop(b, open(), true), newLoop(b, open(), true)}},
		{"plain", []*loop{newLoop(b, plain, false), newLoop(b, plain, false)}}, // one context without thread domains
		{"one", []*loop{newLoop(b, open(), true)}},
	}
	peers := []*threadsPeer{startThreadsPeer(b, 0), startThreadsPeer(b, 1)}
	rates, ratios := make([][]float64, len(forms)), make([][]float64, len(forms))
	for b.Loop() {
		for k, f := range forms {
			writes := make([]int, 2)
			var all sync.WaitGroup
			for i, l := range f.loops {
				all.Go(func() { onCPU(i, func() { writes[i] = l.run(threadsWindow) }) })
			}
			if f.loops == nil {
				for _, p := range peers {
					_, err := fmt.Fprintln(p.in)
					require.NoError(b, err)
				}
				for i, p := range peers {
					require.True(b, p.out.Scan())
					_, err := fmt.Sscanf(p.out.Text(), "writes %d", &writes[i])
					require.NoError(b, err)
				}
			}
			all.Wait()
			rates[k] = append(rates[k], float64(writes[0]+writes[1])/threadsWindow.Seconds()/1e6)
			ratios[k] = append(ratios[k], rates[k][len(rates[k])-1]/rates[0][len(rates[0])-1])
		}
	}
	for k, f := range forms {
		slices.Sort(rates[k])
		slices.Sort(ratios[k])
		n := len(rates[k])
		b.ReportMetric(rates[k][n/2], f.name+"-M/s")
		if k > 0 {
			b.ReportMetric(ratios[k][n/2], f.name+"/programs")
		}
	}
	b.ReportMetric(0, "ns/op")
}
