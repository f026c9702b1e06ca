package ucp

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// laneState is the life of a lane:
//
//	closed ──► open ◄──► draining
//	             │            │
//	             └──► failed ◄┘      and from each of them back to closed
//
// A closed lane is lane 0 or one of the free list. A draining lane has no endpoint and no
// remote key, but work that has to end first. A failed lane stays as long as an endpoint,
// a remote key or such work refers to it, and refuses operations.
type laneState uint8

const (
	laneClosed laneState = iota
	laneOpen
	laneDraining
	laneFailed
	numLaneStates
)

func (s laneState) String() string {
	return [...]string{"closed", "open", "draining", "failed"}[s]
}

// laneTransitions lists the states that may follow each state.
var laneTransitions = [numLaneStates][numLaneStates]bool{
	laneClosed:   {laneOpen: true},
	laneOpen:     {laneDraining: true, laneFailed: true, laneClosed: true},
	laneDraining: {laneOpen: true, laneFailed: true, laneClosed: true},
	laneFailed:   {laneClosed: true},
}

// slowReasons are the reasons why operations on a lane have to take the slow path.
type slowReasons uint8

const (
	slowAddress  slowReasons = 1 << iota // this worker's address was not sent to the peer yet
	slowRndvOnly                         // the peer's receive credit is exhausted: it accepts rendezvous only
	slowNoCredit                         // stalled until a send gets a credit; see lane_credit.go
	slowStalled                          // a stalledEndpoint takes the place of the endpoint; see lane_stall.go

	allSlowReasons = slowAddress | slowRndvOnly | slowNoCredit | slowStalled
)

// laneLife is the part of a lane that decides about its fast path and its end.
//
// Invariant: maxShort is not negative, so the fast path of tag messages is open, if and only if
// the lane is open, no reason for the slow path holds and the context has FeatureTag. The same
// holds for amShort, active messages and FeatureAM. Only enter and setSlow change these fields,
// and both end in update.
type laneLife struct {
	maxShort int // longest AMShort tag message of the fast path; -1: use the slow path
	amShort  int // the same of active messages
	tagFast  int // maxShort while the fast path is open
	amFast   int // amShort while the fast path is open
	state    laneState
	slow     slowReasons

	refs int // references of endpoints and remote keys
	// replyRefs counts the rx connections that reply on it. They do not keep the lane open after the program closed all
	// endpoints to the peer. Otherwise two workers that replied to each other would keep their connection for ever.
	replyRefs int
	uses      int // reads of the peer's memory, memory exposed to the peer, and drains (request.DrainLane)
	pending   int // operations on its pending queue
}

// closedLane is the life of lane 0 and of free lanes.
var closedLane = laneLife{maxShort: -1, amShort: -1}

// enter changes the state. It panics if that state must not follow.
func (l *laneLife) enter(s laneState) {
	if !laneTransitions[l.state][s] {
		panic(fmt.Sprintf("ucp: a lane that is %v becomes %v", l.state, s))
	}
	l.state = s
	l.update()
}

// is reports whether one of the reasons holds.
func (l *laneLife) is(r slowReasons) bool { return l.slow&r != 0 }

// setSlow adds the reasons r, or removes them.
func (l *laneLife) setSlow(r slowReasons, on bool) {
	if l.slow &^= r; on {
		l.slow |= r
	}
	l.update()
}

// update opens or closes the fast path.
func (l *laneLife) update() {
	l.maxShort, l.amShort = -1, -1
	if l.state == laneOpen && l.slow == 0 {
		l.maxShort, l.amShort = l.tagFast, l.amFast
	}
}

// status returns OK, or the status with which a failed lane refuses operations.
func (l *laneLife) status() ucs.Status {
	if l.state == laneFailed {
		return ucs.PeerFailed
	}
	return ucs.OK
}

// unretain drops a reference of an endpoint or a remote key, and reports whether it was
// the last.
func (l *laneLife) unretain() bool {
	l.refs = max(l.refs-1, 0)
	return l.refs == 0
}

// use keeps the lane open for work in progress until unuse. The lane then may have to close:
// see closeIfDrained.
func (l *laneLife) use() { l.uses++ }

func (l *laneLife) unuse() { l.uses-- }

// unreferenced reports whether the lane stays open for work in progress alone.
func (l *laneLife) unreferenced() bool {
	return l.state == laneDraining || l.state == laneFailed && l.refs+l.replyRefs == 0
}

// drainsPending reports whether the lane stays open only for its pending queue. Such
// operations belong to no endpoint any more, but the peer has to receive them.
func (l *laneLife) drainsPending() bool {
	return l.state == laneDraining && l.uses == 0 && l.pending > 0
}
