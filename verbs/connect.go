package verbs

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// RemoteQP describes the remote queue pair of a connection. The program gets the fields from
// its peer.
type RemoteQP struct {
	// AV is the address of the peer's port. AV.Port is the local port.
	AV  AHAttr
	QPN QPN
	// PSN is the first PSN that the peer sends.
	PSN PSN
	// MTU is the path MTU: the smaller PortAttr.PathMTU of both ports.
	MTU MTU
	// MaxRdAtomic is the most READs and atomics that the peer has outstanding; not for UC.
	MaxRdAtomic uint8
	// PeerFeatures is QPAttr.PeerFeatures; 0 where the local port has none.
	PeerFeatures uint32
}

// ConnectRC takes an RC queue pair from Reset or Init to RTS, connected to remote. Of local
// it reads the attributes of this side: PKeyIndex, Access, SQPSN, MaxRdAtomic, Timeout,
// RetryCnt, RNRRetry and MinRNRTimer. A queue pair in Init keeps its PKeyIndex and Access.
//
// The peer may send at once: receives are posted before, which needs state Init.
//
// Errors: those of QP.Modify. The queue pair is then in the state before the refused
// transition.
//
// Cost: three calls of Modify and a Query; over hardware each is a system call.
func ConnectRC(q QP, remote RemoteQP, local QPAttr) error {
	toRTR := AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer
	if remote.PeerFeatures != 0 {
		toRTR |= AttrPeerFeatures // an attribute that only soft devices have
	}
	return toRTS(q, remote.applyTo(local), [3]AttrMask{
		AttrPKeyIndex | AttrPort | AttrAccessFlags,
		toRTR,
		AttrSQPSN | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic,
	})
}

// ConnectUC is ConnectRC for a UC queue pair. It reads PKeyIndex, Access and SQPSN of local.
func ConnectUC(q QP, remote RemoteQP, local QPAttr) error {
	toRTR := AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN
	if remote.PeerFeatures != 0 {
		toRTR |= AttrPeerFeatures
	}
	return toRTS(q, remote.applyTo(local), [3]AttrMask{AttrPKeyIndex | AttrPort | AttrAccessFlags, toRTR, AttrSQPSN})
}

// applyTo returns the attributes of the local side with those of the remote one.
func (r *RemoteQP) applyTo(a QPAttr) QPAttr {
	a.Port, a.AV, a.PathMTU, a.PeerFeatures = r.AV.Port, r.AV, r.MTU, r.PeerFeatures
	a.DestQPN, a.RQPSN, a.MaxDestRdAtomic = r.QPN, r.PSN, r.MaxRdAtomic
	return a
}

// StartUD takes a UD queue pair from Reset or Init to RTS. It reads Port, PKeyIndex, QKey
// and SQPSN of local. A queue pair in Init keeps the first three.
//
// Errors and cost are those of ConnectRC.
func StartUD(q QP, local QPAttr) error {
	return toRTS(q, local, [3]AttrMask{AttrPKeyIndex | AttrPort | AttrQKey, 0, AttrSQPSN})
}

// toRTS takes q through Init and RTR to RTS with the attributes of a that each mask names.
func toRTS(q QP, a QPAttr, masks [3]AttrMask) error {
	from := q.Query().State
	if from != StateReset && from != StateInit {
		return fmt.Errorf("connect qp 0x%x in state %v, want %v or %v: %w", uint32(q.QPN()), from, StateReset, StateInit, ucs.ErrInvalid)
	}
	for i := from; i <= StateRTR; i++ {
		a.State = i + 1
		if err := q.Modify(&a, AttrState|masks[i]); err != nil {
			return err
		}
	}
	return nil
}
