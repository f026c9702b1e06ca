//go:build linux && cgo && ibverbs

package ibv

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// deviceVar lists the RDMA devices that the tests use.
const deviceVar = "GOUCX_IBV_DEVICE"

// liveDevices returns the names of one or two devices, which the environment lists. Without them the test
// is skipped: it needs an RDMA device.
func liveDevices(t testing.TB) []string {
	t.Helper()
	names := os.Getenv(deviceVar)
	if names == "" {
		t.Skip("no RDMA device: " + deviceVar + " is not set")
	}
	return strings.Split(names, ",")
}

func openLive(t testing.TB, name string) verbs.Context {
	t.Helper()
	p := New(Config{})
	infos, err := p.Devices()
	require.NoError(t, err)
	i := slices.IndexFunc(infos, func(d verbs.DeviceInfo) bool { return d.Name == name })
	require.GreaterOrEqual(t, i, 0, "%s: no device %s among %v", deviceVar, name, infos)
	c, err := p.Open(infos[i])
	require.NoError(t, err)
	return c
}

// livePair is two connected queue pairs of one device, and memory that both may access.
type livePair struct {
	d   verbs.Context
	cq  verbs.CQ
	mr  verbs.MR
	buf []byte
	qs  [2]verbs.QP
}

func newLivePair(t testing.TB) *livePair {
	p := &livePair{d: openLive(t, liveDevices(t)[0]), buf: make([]byte, 4096)}
	port, err := p.d.Port(1)
	require.NoError(t, err)
	gid, err := p.d.GID(1, port.GIDIndex)
	require.NoError(t, err)
	pd, err := p.d.AllocPD()
	require.NoError(t, err)
	p.cq, err = p.d.CreateCQ(verbs.CQConfig{Depth: 64})
	require.NoError(t, err)
	p.mr, err = pd.Register(p.buf, verbs.MRConfig{Access: verbs.LocalWrite | verbs.RemoteWrite})
	require.NoError(t, err)
	for i := range p.qs {
		p.qs[i], err = pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: p.cq, RecvCQ: p.cq, Caps: verbs.QPCaps{MaxSend: 16, MaxRecv: 16, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 64}})
		require.NoError(t, err)
	}
	for i, q := range p.qs {
		remote := verbs.RemoteQP{
			AV: verbs.AHAttr{DGID: gid, SGIDIndex: port.GIDIndex, Port: 1, HopLimit: 64}, QPN: p.qs[1-i].QPN(), MTU: port.ActiveMTU, MaxRdAtomic: 1,
		}
		local := verbs.QPAttr{Access: verbs.RemoteWrite, Timeout: 18, RetryCnt: 6, RNRRetry: 7, MinRNRTimer: 1, MaxRdAtomic: 1}
		require.NoError(t, verbs.ConnectRC(q, remote, local))
	}
	t.Cleanup(func() {
		for _, f := range []func() error{p.qs[0].Close, p.qs[1].Close, p.mr.Close, p.cq.Close, pd.Close, p.d.Close} {
			require.NoError(t, f())
		}
	})
	return p
}

// TestLiveMessage is the shortest program: two queue pairs of one device, a message.
func TestLiveMessage(t *testing.T) {
	p := newLivePair(t)
	n, st := p.qs[1].PostRecv([]verbs.RecvWR{{ID: 7, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{{Addr: p.mr.Addr(), Len: 64, LKey: p.mr.LKey()}}}})
	require.Equal(t, 1, n, st)
	w := verbs.SendWR{ID: 8, Op: verbs.OpSendImm, Flags: verbs.SendSignaled | verbs.SendInline, InlineLen: 5, Imm: 0x12345678}
	copy(w.Inline[:], "hello")
	n, st = p.qs[0].PostSend([]verbs.SendWR{w})
	require.Equal(t, 1, n, st)
	var got []verbs.WC
	wcs := make([]verbs.WC, 4)
	for len(got) < 2 {
		n := p.cq.Poll(wcs)
		require.GreaterOrEqual(t, n, 0)
		got = append(got, wcs[:n]...)
	}
	t.Logf("%+v", got)
	require.Equal(t, "hello", string(p.buf[:5]))
	for _, c := range got {
		require.Equal(t, verbs.WCSuccess, c.Status)
		if c.Op == verbs.WCRecv {
			require.Equal(t, uint32(0x12345678), c.Imm)
		}
	}
}

// TestLiveCosts counts calls of C and allocations: a list of requests is posted by one call, and a poll
// is one. Nothing allocates.
func TestLiveCosts(t *testing.T) {
	p := newLivePair(t)
	wrs, wcs := make([]verbs.SendWR, 16), make([]verbs.WC, 16)
	for i := range wrs {
		wrs[i] = verbs.SendWR{Op: verbs.OpWrite, Remote: p.mr.Addr() + 2048, RKey: p.mr.RKey(), NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{{Addr: p.mr.Addr(), Len: 8, LKey: p.mr.LKey()}}}
	}
	wrs[len(wrs)-1].Flags = verbs.SendSignaled
	var lists, polls uint64
	failed := false
	began := p.d.(*device).calls()
	allocs := testing.AllocsPerRun(20, func() {
		n, st := p.qs[0].PostSend(wrs)
		failed = failed || n != len(wrs) || st != ucs.OK
		lists++
		for k := 0; k == 0 && !failed; polls++ {
			k = p.cq.Poll(wcs)
			failed = failed || k < 0 || k == 1 && wcs[0].Status != verbs.WCSuccess
		}
	})
	ended := p.d.(*device).calls()
	require.False(t, failed, "%+v", wcs[0])
	require.Zero(t, allocs)
	require.Equal(t, lists, ended[cntQPCalls]-began[cntQPCalls])
	require.Equal(t, polls, ended[cntCQCalls]-began[cntCQCalls])
	t.Logf("%d lists of %d writes: %d calls to post, %d to poll, %v allocations", lists, len(wrs), lists, polls, allocs)
}
