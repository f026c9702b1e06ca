//go:build linux && cgo && ibverbs

package ibv

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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

// TestLiveMessage is the shortest program: two queue pairs of one device, a message.
func TestLiveMessage(t *testing.T) {
	d := openLive(t, liveDevices(t)[0])

	p, err := d.Port(1)
	require.NoError(t, err)
	t.Logf("%+v", p)
	gid, err := d.GID(1, p.GIDIndex)
	require.NoError(t, err)
	pd, err := d.AllocPD()
	require.NoError(t, err)
	cq, err := d.CreateCQ(verbs.CQConfig{Depth: 16})
	require.NoError(t, err)
	buf := make([]byte, 4096)
	mr, err := pd.Register(buf, verbs.MRConfig{Access: verbs.LocalWrite | verbs.RemoteWrite})
	require.NoError(t, err)
	var qs [2]verbs.QP
	for i := range qs {
		qs[i], err = pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Caps: verbs.QPCaps{MaxSend: 4, MaxRecv: 4, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 64}})
		require.NoError(t, err)
		require.NoError(t, qs[i].Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1, Access: verbs.RemoteWrite},
			verbs.AttrState|verbs.AttrPort|verbs.AttrPKeyIndex|verbs.AttrAccessFlags))
	}
	for i, q := range qs {
		a := verbs.QPAttr{
			State: verbs.StateRTR, AV: verbs.AHAttr{DGID: gid, SGIDIndex: p.GIDIndex, Port: 1, HopLimit: 64}, PathMTU: p.ActiveMTU,
			DestQPN: qs[1-i].QPN(), MaxDestRdAtomic: 1, MinRNRTimer: 1,
		}
		require.NoError(t, q.Modify(&a, verbs.AttrState|verbs.AttrAV|verbs.AttrPathMTU|verbs.AttrDestQPN|verbs.AttrRQPSN|verbs.AttrMaxDestRdAtomic|verbs.AttrMinRNRTimer))
		a = verbs.QPAttr{State: verbs.StateRTS, Timeout: 18, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1}
		require.NoError(t, q.Modify(&a, verbs.AttrState|verbs.AttrSQPSN|verbs.AttrTimeout|verbs.AttrRetryCnt|verbs.AttrRNRRetry|verbs.AttrMaxRdAtomic))
	}
	n, st := qs[1].PostRecv([]verbs.RecvWR{{ID: 7, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{{Addr: mr.Addr(), Len: 64, LKey: mr.LKey()}}}})
	require.Equal(t, 1, n, st)
	w := verbs.SendWR{ID: 8, Op: verbs.OpSendImm, Flags: verbs.SendSignaled | verbs.SendInline, InlineLen: 5, Imm: 0x12345678}
	copy(w.Inline[:], "hello")
	n, st = qs[0].PostSend([]verbs.SendWR{w})
	require.Equal(t, 1, n, st)
	var got []verbs.WC
	wcs := make([]verbs.WC, 4)
	for len(got) < 2 {
		n := cq.Poll(wcs)
		require.GreaterOrEqual(t, n, 0)
		got = append(got, wcs[:n]...)
	}
	t.Logf("%+v", got)
	require.Equal(t, "hello", string(buf[:5]))
	for _, c := range got {
		require.Equal(t, verbs.WCSuccess, c.Status)
		if c.Op == verbs.WCRecv {
			require.Equal(t, uint32(0x12345678), c.Imm)
		}
	}
	for _, f := range []func() error{qs[0].Close, qs[1].Close, mr.Close, cq.Close, pd.Close, d.Close} {
		require.NoError(t, f())
	}
}
