package verbs

import (
	"errors"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// valid is an attribute set whose every field a device takes.
func valid(to QPState) *QPAttr {
	return &QPAttr{
		State: to, Port: 1, AV: AHAttr{DGID: GID{15: 1}, Port: 1}, PathMTU: MTU1024, DestQPN: 17, RQPSN: 1, SQPSN: 2,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, MaxRdAtomic: 1, MaxDestRdAtomic: 1,
	}
}

// machine is the transition table a second time, as a reader of the
// specification writes it down: required attributes and optional ones.
var machine = map[QPType]map[[2]QPState][2]string{
	RC: {
		{StateReset, StateInit}: {"ACCESS_FLAGS|PKEY_INDEX|PORT", ""},
		{StateInit, StateInit}:  {"", "ACCESS_FLAGS|PKEY_INDEX|PORT"},
		{StateInit, StateRTR}: {
			"AV|PATH_MTU|RQ_PSN|MIN_RNR_TIMER|MAX_DEST_RD_ATOMIC|DEST_QPN",
			"ACCESS_FLAGS|PKEY_INDEX|PEER_FEATURES",
		},
		{StateRTR, StateRTS}: {
			"TIMEOUT|RETRY_CNT|RNR_RETRY|MAX_QP_RD_ATOMIC|SQ_PSN", "CUR_STATE|ACCESS_FLAGS|MIN_RNR_TIMER|PATH_MIG_STATE",
		},
		{StateRTS, StateRTS}: {"", "CUR_STATE|ACCESS_FLAGS|MIN_RNR_TIMER|PATH_MIG_STATE"},
		{StateRTS, StateSQD}: {"", "EN_SQD_ASYNC_NOTIFY"},
		{StateSQD, StateRTS}: {"", "CUR_STATE|ACCESS_FLAGS|MIN_RNR_TIMER|PATH_MIG_STATE"},
		{StateSQD, StateSQD}: {"", "ACCESS_FLAGS|PKEY_INDEX|PORT|AV|TIMEOUT|RETRY_CNT|RNR_RETRY|MAX_QP_RD_ATOMIC|" +
			"MIN_RNR_TIMER|MAX_DEST_RD_ATOMIC|PATH_MIG_STATE"},
	},
	UC: {
		{StateReset, StateInit}: {"ACCESS_FLAGS|PKEY_INDEX|PORT", ""},
		{StateInit, StateInit}:  {"", "ACCESS_FLAGS|PKEY_INDEX|PORT"},
		{StateInit, StateRTR}:   {"AV|PATH_MTU|RQ_PSN|DEST_QPN", "ACCESS_FLAGS|PKEY_INDEX|PEER_FEATURES"},
		{StateRTR, StateRTS}:    {"SQ_PSN", "CUR_STATE|ACCESS_FLAGS|PATH_MIG_STATE"},
		{StateRTS, StateRTS}:    {"", "CUR_STATE|ACCESS_FLAGS|PATH_MIG_STATE"},
		{StateRTS, StateSQD}:    {"", "EN_SQD_ASYNC_NOTIFY"},
		{StateSQD, StateRTS}:    {"", "CUR_STATE|ACCESS_FLAGS|PATH_MIG_STATE"},
		{StateSQD, StateSQD}:    {"", "ACCESS_FLAGS|PKEY_INDEX|AV|PATH_MIG_STATE"},
		{StateSQE, StateRTS}:    {"", "CUR_STATE|ACCESS_FLAGS"},
	},
	UD: {
		{StateReset, StateInit}: {"PKEY_INDEX|PORT|QKEY", ""},
		{StateInit, StateInit}:  {"", "PKEY_INDEX|PORT|QKEY"},
		{StateInit, StateRTR}:   {"", "PKEY_INDEX|QKEY"},
		{StateRTR, StateRTS}:    {"SQ_PSN", "CUR_STATE|QKEY"},
		{StateRTS, StateRTS}:    {"", "CUR_STATE|QKEY"},
		{StateRTS, StateSQD}:    {"", "EN_SQD_ASYNC_NOTIFY"},
		{StateSQD, StateRTS}:    {"", "CUR_STATE|QKEY"},
		{StateSQD, StateSQD}:    {"", "PKEY_INDEX|QKEY"},
		{StateSQE, StateRTS}:    {"", "CUR_STATE|QKEY"},
	},
}

// TestModifyCells goes through every pair of states, and in each through every
// attribute: missing where it is required, given where it is not allowed.
func TestModifyCells(t *testing.T) {
	for _, typ := range []QPType{RC, UC, UD} {
		for from := range numQPStates {
			for to := range numQPStates {
				cell, ok := machine[typ][[2]QPState{from, to}]
				if to == StateReset || to == StateErr && from != StateReset {
					require.False(t, ok)
					ok = true
				}
				t.Run(typ.String()+"/"+from.String()+"-"+to.String(), func(t *testing.T) { checkCell(t, typ, from, to, cell, ok) })
			}
		}
	}
}

func checkCell(t *testing.T, typ QPType, from, to QPState, cell [2]string, ok bool) {
	a := valid(to)
	a.CurState = from
	required, optional := masks(t, cell[0]), masks(t, cell[1])
	if from < StateRTR || from > StateSQE {
		optional &^= AttrCurState
	}
	got, err := CheckModify(typ, from, a, AttrState|required|optional)
	if !ok {
		require.ErrorIs(t, err, ucs.ErrInvalid)
		require.ErrorContains(t, err, "no such transition")
		require.Equal(t, from, got)
		return
	}
	require.NoError(t, err)
	require.Equal(t, to, got)
	if from == to && required == 0 {
		got, err = CheckModify(typ, from, a, optional) // without AttrState it stays
		require.Equal(t, cell[1] != "", err == nil, "%v", err)
		require.Equal(t, from, got)
	}
	for bit := range 32 {
		one := AttrMask(1) << bit
		got, err = CheckModify(typ, from, a, AttrState|required&^one)
		if required&one != 0 {
			refused(t, err, "missing "+one.String())
			require.Equal(t, from, got)
		} else {
			require.NoError(t, err)
		}
		_, err = CheckModify(typ, from, a, AttrState|required|one)
		switch {
		case (required|optional|AttrState)&one != 0:
			require.NoError(t, err, one)
		case one == AttrAltPath:
			refused(t, err, "no alternate paths")
		default:
			refused(t, err, "superfluous "+one.String())
		}
	}
}

func refused(t *testing.T, err error, why string) {
	t.Helper()
	require.ErrorIs(t, err, ucs.ErrInvalid)
	require.ErrorContains(t, err, why)
}

// masks parses names of attributes.
func masks(t *testing.T, names string) (m AttrMask) {
	t.Helper()
	for i, name := range attrNames {
		if name != "" && contains(names, name) {
			m |= 1 << i
		}
	}
	if names != "" {
		require.Equal(t, names, m.String(), "names stand in the order of their bits")
	}
	return m
}

func TestModifyNamesAllFaults(t *testing.T) {
	a := valid(StateInit)
	_, err := CheckModify(RC, StateReset, a, AttrState|AttrPort|AttrQKey|AttrDestQPN)
	refused(t, err, "missing ACCESS_FLAGS|PKEY_INDEX")
	refused(t, err, "superfluous QKEY|DEST_QPN")
	refused(t, err, "modify qp from RESET to INIT")
}

func TestModifyValues(t *testing.T) {
	connect := AttrState | AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer
	ready := AttrState | AttrSQPSN | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic
	for name, c := range map[string]struct {
		from, to QPState
		mask     AttrMask
		change   func(*QPAttr)
		fault    string
	}{
		"all in range":      {StateInit, StateRTR, connect, func(*QPAttr) {}, ""},
		"port zero":         {StateInit, StateInit, AttrPort, func(a *QPAttr) { a.Port = 0 }, "PORT 0"},
		"no address":        {StateInit, StateRTR, connect, func(a *QPAttr) { a.AV.DGID = GID{} }, "AV"},
		"no port":           {StateInit, StateRTR, connect, func(a *QPAttr) { a.AV.Port = 0 }, "AV"},
		"flow label":        {StateInit, StateRTR, connect, func(a *QPAttr) { a.AV.FlowLabel = 1 << 20 }, "AV"},
		"mtu 0":             {StateInit, StateRTR, connect, func(a *QPAttr) { a.PathMTU = 0 }, "PATH_MTU mtu 0"},
		"mtu 7":             {StateInit, StateRTR, connect, func(a *QPAttr) { a.PathMTU = 7 }, "PATH_MTU mtu 7"},
		"rnr timer":         {StateInit, StateRTR, connect, func(a *QPAttr) { a.MinRNRTimer = 32 }, "MIN_RNR_TIMER 32"},
		"qpn":               {StateInit, StateRTR, connect, func(a *QPAttr) { a.DestQPN = 1 << 24 }, "DEST_QPN 16777216"},
		"psn is only cut":   {StateInit, StateRTR, connect, func(a *QPAttr) { a.RQPSN = 1 << 24 }, ""},
		"timeout":           {StateRTR, StateRTS, ready, func(a *QPAttr) { a.Timeout = 32 }, "TIMEOUT 32"},
		"retries":           {StateRTR, StateRTS, ready, func(a *QPAttr) { a.RetryCnt = 8 }, "RETRY_CNT 8"},
		"rnr retries":       {StateRTR, StateRTS, ready, func(a *QPAttr) { a.RNRRetry = 8 }, "RNR_RETRY 8"},
		"not in the mask":   {StateRTR, StateRTS, ready, func(a *QPAttr) { a.PathMTU, a.Port = 9, 0 }, ""},
		"claim holds":       {StateRTS, StateRTS, AttrCurState, func(a *QPAttr) { a.CurState = StateRTS }, ""},
		"claim is wrong":    {StateRTS, StateRTS, AttrCurState, func(a *QPAttr) { a.CurState = StateSQD }, "CUR_STATE SQD"},
		"claim of reset":    {StateReset, StateReset, AttrCurState, func(a *QPAttr) { a.CurState = StateReset }, "CUR_STATE RESET"},
		"claim of no state": {StateRTS, StateRTS, AttrCurState, func(a *QPAttr) { a.CurState = 200 }, "CUR_STATE qp state 200"},
		"nothing in reset":  {StateReset, StateReset, 0, func(*QPAttr) {}, "no such transition"},
		"nothing in err":    {StateErr, StateErr, 0, func(*QPAttr) {}, "no such transition"},
		"nothing in rts":    {StateRTS, StateRTS, 0, func(*QPAttr) {}, ""},
		"to no state":       {StateRTS, 7, AttrState, func(*QPAttr) {}, "no such transition"},
		"from no state":     {7, StateReset, AttrState, func(*QPAttr) {}, "no such transition"},
	} {
		t.Run(name, func(t *testing.T) {
			a := valid(c.to)
			c.change(a)
			before := *a
			to, err := CheckModify(RC, c.from, a, c.mask)
			require.Equal(t, before, *a, "only read")
			if c.fault == "" {
				require.NoError(t, err)
				require.Equal(t, c.to, to)
				return
			}
			refused(t, err, c.fault)
			require.Equal(t, c.from, to)
		})
	}
}

func TestModifyUnsupportedTypes(t *testing.T) {
	for _, typ := range []QPType{0, 9} {
		_, err := CheckModify(typ, StateReset, valid(StateInit), AttrState)
		require.ErrorIs(t, err, ucs.ErrUnsupported)
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

// TestApply: each attribute takes its field along, and nothing else.
func TestApply(t *testing.T) {
	all := QPAttr{
		State: 1, CurState: 2, EnSQDAsyncNotify: true, Access: 3, PKeyIndex: 4, Port: 5, QKey: 6, AV: AHAttr{DLID: 7},
		PathMTU: 1, DestQPN: 8, RQPSN: 9, SQPSN: 10, Timeout: 11, RetryCnt: 1, RNRRetry: 2, MinRNRTimer: 12,
		MaxRdAtomic: 13, MaxDestRdAtomic: 14, PeerFeatures: 15, Caps: QPCaps{MaxSend: 16},
	}
	var sum QPAttr
	seen := map[QPAttr]AttrMask{}
	var known AttrMask
	for bit := range attrNames {
		one := AttrMask(1) << bit
		if attrNames[bit] == "" {
			continue
		}
		known |= one
		var a QPAttr
		a.Apply(&all, one)
		if one == AttrAltPath || one == AttrPathMigState {
			assert.Equal(t, QPAttr{}, a, "%v has no field", one)
			continue
		}
		assert.NotEqual(t, QPAttr{}, a, "%v", one)
		assert.Zero(t, seen[a], "%v sets what another sets", one)
		seen[a] = one
		sum.Apply(&all, one)
	}
	assert.Equal(t, all, sum)
	assert.Equal(t, 22, bits.OnesCount32(uint32(known)))
	sum.Apply(&QPAttr{}, 0)
	assert.Equal(t, all, sum)
	sum.Apply(&QPAttr{RQPSN: 0xff000001, SQPSN: 1 << 24}, AttrRQPSN|AttrSQPSN)
	assert.Equal(t, [2]PSN{1, 0}, [2]PSN{sum.RQPSN, sum.SQPSN})
}
