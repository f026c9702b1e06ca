package verbs

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// validCurStates are the states that CurState may have.
const validCurStates = 1<<StateRTR | 1<<StateRTS | 1<<StateSQD | 1<<StateSQE

// CheckModify checks a Modify of a queue pair in state from against the transitions
// table. It returns the new state, which is from if the mask lacks AttrState. It reads
// only the fields in the mask and changes nothing. The provider checks the limits of
// its device.
//
// Errors: ucs.ErrInvalid, with the attributes that are missing, superfluous or out of
// range; ucs.ErrUnsupported for types other than RC, UC and UD.
//
// Source: ib_modify_qp_is_ok of the Linux kernel's core/verbs.c, and the checks of
// core/uverbs_cmd.c before it.
func CheckModify(t QPType, from QPState, a *QPAttr, mask AttrMask) (to QPState, err error) {
	table := transitions[t]
	if table == nil {
		return from, fmt.Errorf("modify qp of type %v: %w", t, ucs.ErrUnsupported)
	}
	to = from
	if mask&AttrState != 0 {
		to = a.State
	}
	if err := errors.Join(checkTransition(table, from, to, mask), checkValues(from, a, mask)); err != nil {
		return from, fmt.Errorf("modify qp from %v to %v: %w", from, to, err)
	}
	return to, nil
}

func checkTransition(table map[transition]rule, from, to QPState, mask AttrMask) error {
	r, ok := table[transition{from, to}]
	switch {
	case from >= numQPStates || mask&AttrState == 0:
	case to == StateReset, to == StateErr && from != StateReset:
		r, ok = rule{}, true
	}
	if !ok {
		return fmt.Errorf("no such transition: %w", ucs.ErrInvalid)
	}
	var errs []error
	if missing := r.required &^ mask; missing != 0 {
		errs = append(errs, fmt.Errorf("missing %v: %w", missing, ucs.ErrInvalid))
	}
	if extra := mask &^ (r.required | r.optional | AttrState); extra != 0 {
		errs = append(errs, fmt.Errorf("superfluous %v: %w", extra, ucs.ErrInvalid))
	}
	return errors.Join(errs...)
}

// checkValues checks for values that no device accepts.
func checkValues(from QPState, a *QPAttr, mask AttrMask) error {
	var errs []error
	for _, c := range []struct {
		attr AttrMask
		ok   bool
		got  any
	}{
		{AttrCurState, a.CurState == from && validCurStates>>a.CurState&1 != 0, a.CurState},
		{AttrPort, a.Port != 0, a.Port},
		{AttrAV, a.AV.FlowLabel < 1<<20 && a.AV.DGID != GID{} && a.AV.Port != 0, a.AV},
		{AttrPathMTU, a.PathMTU.Bytes() != 0, a.PathMTU},
		{AttrTimeout, a.Timeout < 32, a.Timeout},
		{AttrRetryCnt, a.RetryCnt < 8, a.RetryCnt},
		{AttrRNRRetry, a.RNRRetry < 8, a.RNRRetry},
		{AttrAltPath, false, "RoCE has no alternate paths"},
		{AttrMinRNRTimer, a.MinRNRTimer < 32, a.MinRNRTimer},
		{AttrDestQPN, a.DestQPN <= MulticastQPN, uint32(a.DestQPN)},
	} {
		if mask&c.attr != 0 && !c.ok {
			errs = append(errs, fmt.Errorf("%v %v: %w", c.attr, c.got, ucs.ErrInvalid))
		}
	}
	return errors.Join(errs...)
}

// Apply copies the fields of b that are in mask. PSNs are truncated to 24 bits, as the
// kernel does. AttrPathMigState and AttrAltPath have no field.
func (a *QPAttr) Apply(b *QPAttr, mask AttrMask) {
	set(&a.State, b.State, mask&AttrState)
	set(&a.CurState, b.CurState, mask&AttrCurState)
	set(&a.EnSQDAsyncNotify, b.EnSQDAsyncNotify, mask&AttrEnSQDAsyncNotify)
	set(&a.Access, b.Access, mask&AttrAccessFlags)
	set(&a.PKeyIndex, b.PKeyIndex, mask&AttrPKeyIndex)
	set(&a.Port, b.Port, mask&AttrPort)
	set(&a.QKey, b.QKey, mask&AttrQKey)
	set(&a.AV, b.AV, mask&AttrAV)
	set(&a.PathMTU, b.PathMTU, mask&AttrPathMTU)
	set(&a.DestQPN, b.DestQPN, mask&AttrDestQPN)
	set(&a.RQPSN, b.RQPSN&psnMask, mask&AttrRQPSN)
	set(&a.SQPSN, b.SQPSN&psnMask, mask&AttrSQPSN)
	set(&a.Timeout, b.Timeout, mask&AttrTimeout)
	set(&a.RetryCnt, b.RetryCnt, mask&AttrRetryCnt)
	set(&a.RNRRetry, b.RNRRetry, mask&AttrRNRRetry)
	set(&a.MinRNRTimer, b.MinRNRTimer, mask&AttrMinRNRTimer)
	set(&a.MaxRdAtomic, b.MaxRdAtomic, mask&AttrMaxRdAtomic)
	set(&a.MaxDestRdAtomic, b.MaxDestRdAtomic, mask&AttrMaxDestRdAtomic)
	set(&a.PeerFeatures, b.PeerFeatures, mask&AttrPeerFeatures)
	set(&a.Caps, b.Caps, mask&AttrCap)
}

func set[T any](field *T, v T, wanted AttrMask) {
	if wanted != 0 {
		*field = v
	}
}
