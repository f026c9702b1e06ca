package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestModifyNamesAttributes: every attribute that is beyond the device is refused
// by its name, and nothing changes.
func TestModifyNamesAttributes(t *testing.T) {
	d := openTest(t, Config{MTU: verbs.MTU1024, Limits: Limits{RdAtomic: 4}})
	c := testCQ(t, d, verbs.CQConfig{Depth: 1})
	v, err := testPD(t, d).CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c})
	require.NoError(t, err)
	closeAtEnd(t, v)
	const toInit = verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccessFlags
	bad := verbs.QPAttr{State: verbs.StateInit, PKeyIndex: 1, Port: 2, Access: 1 << 25}
	err = v.Modify(&bad, toInit)
	refused(t, err, ucs.ErrInvalid, "PKEY_INDEX 1, the device has 0")
	refused(t, err, ucs.ErrInvalid, "PORT 2, the device has 1")
	refused(t, err, ucs.ErrInvalid, "ACCESS_FLAGS 0x2000000")
	require.Equal(t, verbs.QPAttr{Caps: v.Query().Caps}, v.Query())
	require.NoError(t, v.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1}, toInit))

	const toRTR = verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN |
		verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer | verbs.AttrPeerFeatures
	good := verbs.QPAttr{
		State: verbs.StateRTR, AV: verbs.AHAttr{DGID: d.gid, DLID: d.lid, Port: 1}, PathMTU: verbs.MTU1024,
		DestQPN: v.QPN(), MaxDestRdAtomic: 4,
	}
	for _, tc := range []struct {
		names  string
		kind   error
		change func(a *verbs.QPAttr)
	}{
		{"AV: port 2", ucs.ErrInvalid, func(a *verbs.QPAttr) { a.AV.Port = 2 }},
		{"AV: SGIDIndex 1", ucs.ErrInvalid, func(a *verbs.QPAttr) { a.AV.SGIDIndex = 1 }},
		{"AV: no queue pair is connected to multicast group", ucs.ErrInvalid, func(a *verbs.QPAttr) { a.AV.DGID = verbs.GID{0: 0xff, 15: 2} }},
		{"AV: no device", ucs.ErrUnreachable, func(a *verbs.QPAttr) { a.AV.DGID[15]++ }},
		{"PATH_MTU 2048, the device has 1024", ucs.ErrInvalid, func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU2048 }},
		{"MAX_DEST_RD_ATOMIC 5, the device has 4", ucs.ErrInvalid, func(a *verbs.QPAttr) { a.MaxDestRdAtomic = 5 }},
		{"PEER_FEATURES 0x80", ucs.ErrInvalid, func(a *verbs.QPAttr) { a.PeerFeatures = verbs.PeerProbe | 0x80 }},
		{"AV: PeerFeatures 0x1", ucs.ErrInvalid, func(a *verbs.QPAttr) { a.AV.PeerFeatures = verbs.PeerProbe }},
	} {
		a := good
		tc.change(&a)
		before := v.Query()
		refused(t, v.Modify(&a, toRTR), tc.kind, tc.names)
		require.Equal(t, before, v.Query())
	}
	require.NoError(t, v.Modify(&good, toRTR))
	require.NoError(t, v.Modify(&verbs.QPAttr{State: verbs.StateRTS, MaxRdAtomic: 16, Timeout: 14, RetryCnt: 7, RNRRetry: 7},
		verbs.AttrState|verbs.AttrSQPSN|verbs.AttrTimeout|verbs.AttrRetryCnt|verbs.AttrRNRRetry|verbs.AttrMaxRdAtomic))
	require.Equal(t, uint8(4), v.Query().MaxRdAtomic)
	require.Equal(t, uint8(4), v.(*qp).req.maxRdAtomic)
}

// TestLongMTU: a path MTU beyond 4096 is for soft peers, whatever their port, and a
// port that is set to 4096 has no such thing.
func TestLongMTU(t *testing.T) {
	const mask = verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN |
		verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer | verbs.AttrPeerFeatures
	for _, tc := range []struct {
		link, names string
		mtu         verbs.MTU
		features    uint32
	}{
		{LinkUDP, "20480, a peer without PeerGoucx takes 4096", 0, 0},
		{LinkUDP, "20480, a peer without PeerGoucx takes 4096", 0, verbs.PeerProbe},
		{LinkUDP, "", 0, verbs.PeerGoucx},
		{LinkInproc, "", 0, 0},
		{LinkUDP, "20480, the device has 4096", verbs.MTU4096, verbs.PeerGoucx},
		{LinkInproc, "20480, the device has 4096", verbs.MTU4096, verbs.PeerGoucx},
	} {
		c := Config{Link: tc.link, MTU: tc.mtu}
		if tc.link == LinkUDP {
			c.Addr = localhost
		}
		e := newEnd(t, New(c), verbs.RC, 64)
		require.NoError(t, e.qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1},
			verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrAccessFlags))
		a := verbs.QPAttr{
			State: verbs.StateRTR, PathMTU: verbs.MTU20480, DestQPN: e.qp.QPN(),
			AV: verbs.AHAttr{DGID: e.device().gid, DLID: e.device().lid, Port: 1}, PeerFeatures: tc.features,
		}
		if err := e.qp.Modify(&a, mask); tc.names != "" {
			refused(t, err, ucs.ErrInvalid, tc.names)
		} else {
			require.NoError(t, err)
		}
	}
}
