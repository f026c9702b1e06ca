package soft

import (
	"fmt"
	"slices"

	"github.com/goucx/goucx/verbs"
)

// qpState is the state of a queue pair. The low byte is the state that the program
// sees. The bits above tell apart what the engine treats differently.
//
//	            ┌───────────── any state ─────────────┐
//	            ▼                                      ▼
//	closed ◀─ reset ──▶ init ──▶ RTR ──▶ RTS ───────▶ error
//	                                    ▲ │ ▲
//	                                    │ ▼ └──────── SQE (datagrams)
//	                                   SQD ◀── draining
//
// The owner of the queue pair changes the state, by setState alone.
type qpState uint32

const (
	qpReset    = qpState(verbs.StateReset)
	qpInit     = qpState(verbs.StateInit)
	qpRTR      = qpState(verbs.StateRTR)
	qpRTS      = qpState(verbs.StateRTS)
	qpSQD      = qpState(verbs.StateSQD)
	qpSQE      = qpState(verbs.StateSQE)
	qpErr      = qpState(verbs.StateErr)
	qpDraining = qpSQD | 1<<8   // EventSQDrained is raised once the send queue is drained
	qpClosed   = qpReset | 1<<8 // removed from the device
)

// String returns the name of the state.
func (s qpState) String() string {
	switch s {
	case qpDraining:
		return "draining"
	case qpClosed:
		return "closed"
	default:
		return verbs.QPState(s).String()
	}
}

// qpTransitions lists the states that may follow each state. Modify has checked what the
// program asks for (verbs.CheckModify); the rest is the engine's.
var qpTransitions = map[qpState][]qpState{
	qpReset:    {qpInit, qpReset, qpClosed},
	qpInit:     {qpRTR, qpErr, qpReset},
	qpRTR:      {qpRTS, qpErr, qpReset},
	qpRTS:      {qpSQD, qpDraining, qpSQE, qpErr, qpReset},
	qpSQD:      {qpRTS, qpErr, qpReset},
	qpDraining: {qpSQD, qpRTS, qpErr, qpReset},
	qpSQE:      {qpRTS, qpErr, qpReset},
	qpErr:      {qpReset},
}

// setState changes the state. A transition that qpTransitions lacks is a defect of the
// engine. The caller owns the queue pair.
func (q *qp) setState(to qpState) {
	from := qpState(q.state.Load())
	if !slices.Contains(qpTransitions[from], to) {
		panic(fmt.Sprintf("qp 0x%x: transition from %v to %v", uint32(q.num), from, to))
	}
	q.state.Store(uint32(to))
}
