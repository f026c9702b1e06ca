package soft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/threadtest"
	"github.com/goucx/goucx/ucs"
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

// TestThreadsProcess is one of the two programs of BenchmarkThreads.
func TestThreadsProcess(t *testing.T) {
	threadtest.Serve(t, func() threadtest.Loop { return newLoop(t, opened(t, New(Config{Link: LinkInproc})), true).run })
}

// BenchmarkThreads compares the rate of writes of eight bytes over the in-process link, inline and
// in lists of 32, of two threads in one program with that of two programs on the same processors.
// Each thread drives both ends of its own connection.
func BenchmarkThreads(b *testing.B) {
	open := func() verbs.Context {
		c := opened(b, New(Config{Link: LinkInproc}))
		b.Cleanup(func() { require.NoError(b, c.Close()) })
		return c
	}
	shared, plain := open(), open()
	loops := func(ls ...*loop) (out []threadtest.Loop) {
		for _, l := range ls {
			out = append(out, l.run)
		}
		return out
	}
	against := []string{"programs"}
	threadtest.Compare(b,
		threadtest.Form{Name: "programs", Programs: "TestThreadsProcess", Processors: 2},
		threadtest.Form{Name: "domains", Loops: loops(newLoop(b, shared, true), newLoop(b, shared, true)), Against: against}, // one context, a thread domain each
		threadtest.Form{Name: "contexts", Loops: loops(newLoop(b, open(), true), newLoop(b, open(), true)), Against: against},
		threadtest.Form{Name: "plain", Loops: loops(newLoop(b, plain, false), newLoop(b, plain, false)), Against: against}, // one context without thread domains
		threadtest.Form{Name: "one", Loops: loops(newLoop(b, open(), true))},
	)
}
