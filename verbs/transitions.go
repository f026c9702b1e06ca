package verbs

// AttrMask is a set of QPAttr fields.
type AttrMask uint32

// Attribute bits.
const (
	AttrState AttrMask = 1 << iota
	AttrCurState
	AttrEnSQDAsyncNotify
	AttrAccessFlags
	AttrPKeyIndex
	AttrPort
	AttrQKey
	AttrAV
	AttrPathMTU
	AttrTimeout
	AttrRetryCnt
	AttrRNRRetry
	AttrRQPSN
	AttrMaxRdAtomic
	AttrAltPath
	AttrMinRNRTimer
	AttrSQPSN
	AttrMaxDestRdAtomic
	AttrPathMigState
	AttrCap
	AttrDestQPN
	// AttrPeerFeatures exists for soft devices only.
	AttrPeerFeatures AttrMask = 1 << 31
)

// rule lists the attributes that a transition requires beside AttrState, and the
// optional ones.
type rule struct{ required, optional AttrMask }

type transition struct{ from, to QPState }

// transitions is the state machine of queue pairs; CheckModify applies it. From any
// state Modify may go to Reset, and from any but Reset to Err, with AttrState alone.
// AttrAltPath is listed as in the source but always refused, because RoCE has no
// alternate paths.
//
// Source: qp_state_table of the Linux kernel's core/verbs.c.
var transitions = map[QPType]map[transition]rule{
	RC: {
		{StateReset, StateInit}: {required: AttrPKeyIndex | AttrPort | AttrAccessFlags},
		{StateInit, StateInit}:  {optional: AttrPKeyIndex | AttrPort | AttrAccessFlags},
		{StateInit, StateRTR}: {
			required: AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer,
			optional: AttrAltPath | AttrAccessFlags | AttrPKeyIndex | AttrPeerFeatures,
		},
		{StateRTR, StateRTS}: {
			required: AttrSQPSN | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic,
			optional: AttrCurState | AttrAltPath | AttrAccessFlags | AttrMinRNRTimer | AttrPathMigState,
		},
		{StateRTS, StateRTS}: {optional: AttrCurState | AttrAccessFlags | AttrAltPath | AttrPathMigState | AttrMinRNRTimer},
		{StateRTS, StateSQD}: {optional: AttrEnSQDAsyncNotify},
		{StateSQD, StateRTS}: {optional: AttrCurState | AttrAltPath | AttrAccessFlags | AttrMinRNRTimer | AttrPathMigState},
		{StateSQD, StateSQD}: {optional: AttrAV | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic | AttrMaxDestRdAtomic |
			AttrAltPath | AttrPKeyIndex | AttrPort | AttrAccessFlags | AttrMinRNRTimer | AttrPathMigState},
	},
	UC: {
		{StateReset, StateInit}: {required: AttrPKeyIndex | AttrPort | AttrAccessFlags},
		{StateInit, StateInit}:  {optional: AttrPKeyIndex | AttrPort | AttrAccessFlags},
		{StateInit, StateRTR}: {
			required: AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN,
			optional: AttrAltPath | AttrAccessFlags | AttrPKeyIndex | AttrPeerFeatures,
		},
		{StateRTR, StateRTS}: {required: AttrSQPSN, optional: AttrCurState | AttrAltPath | AttrAccessFlags | AttrPathMigState},
		{StateRTS, StateRTS}: {optional: AttrCurState | AttrAccessFlags | AttrAltPath | AttrPathMigState},
		{StateRTS, StateSQD}: {optional: AttrEnSQDAsyncNotify},
		{StateSQD, StateRTS}: {optional: AttrCurState | AttrAltPath | AttrAccessFlags | AttrPathMigState},
		{StateSQD, StateSQD}: {optional: AttrAV | AttrAltPath | AttrPKeyIndex | AttrAccessFlags | AttrPathMigState},
		{StateSQE, StateRTS}: {optional: AttrCurState | AttrAccessFlags},
	},
	UD: {
		{StateReset, StateInit}: {required: AttrPKeyIndex | AttrPort | AttrQKey},
		{StateInit, StateInit}:  {optional: AttrPKeyIndex | AttrPort | AttrQKey},
		{StateInit, StateRTR}:   {optional: AttrPKeyIndex | AttrQKey},
		{StateRTR, StateRTS}:    {required: AttrSQPSN, optional: AttrCurState | AttrQKey},
		{StateRTS, StateRTS}:    {optional: AttrCurState | AttrQKey},
		{StateRTS, StateSQD}:    {optional: AttrEnSQDAsyncNotify},
		{StateSQD, StateRTS}:    {optional: AttrCurState | AttrQKey},
		{StateSQD, StateSQD}:    {optional: AttrPKeyIndex | AttrQKey},
		{StateSQE, StateRTS}:    {optional: AttrCurState | AttrQKey},
	},
}
