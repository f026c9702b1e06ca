package soft

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// expireTimers serves the queue pair's expired timers. It returns when to call it again;
// never: no timer runs.
//
// Concurrency: the caller owns the queue pair.
func (q *qp) expireTimers(now ucs.Time) ucs.Time {
	r, s := &q.req, &q.rsp
	next := never

	// Requester: RNR pause, or else time-out and probe. A time-out goes back to the oldest
	// packet. With probes that one is sent alone (probe.pending): its response shows which
	// of the others the peer has. The window is halved, as after any loss. lastProgress is when una last
	// advanced, or the first check after that: the timer starts with the first check. A
	// full inbox of the peer counts as an outstanding packet, and consuming it as progress.
	if r.rnrWait < 0 {
		r.rnrWait = now - r.rnrWait
	}
	if now >= r.rnrWait {
		r.rnrWait = 0
	}
	switch state := q.loadState(); {
	case r.rnrWait != 0:
		next = r.rnrWait
	case r.una == r.psn && !q.inboxFull() || r.timeout == 0 || state < verbs.StateRTS || state > verbs.StateSQD:
		r.lastProgress = 0
	default:
		if r.lastProgress == 0 || r.una == r.psn && q.peerConsumes() {
			r.lastProgress = now
			r.probe.startRTT(r.sndMax, now)
		}
		if now.Sub(r.lastProgress) >= r.timeout {
			q.count(cntTimeouts, 1)
			r.lastProgress = now
			if r.retries == 0 {
				q.failSend(verbs.WCRetryExcErr)
				break
			}
			r.retries--
			r.window.halve()
			r.probe.count, r.probe.pending = 0, r.probe.enabled
			q.goBack(r.una)
		}
		next = min(r.lastProgress.Add(r.timeout), q.checkProbe(now))
	}

	// Missing responses are requested again.
	if r.gapDeadline != 0 {
		if now >= r.gapDeadline {
			r.gapDeadline = 0
			q.requestMissing(len(r.reorder.packets))
		} else {
			next = min(next, r.gapDeadline)
		}
	}

	// Responder: a gap is reported, a delayed ACK becomes due.
	if s.gap == gapOpen {
		if now >= s.gapDeadline {
			q.reportGap()
		} else {
			next = min(next, s.gapDeadline)
		}
	}
	if s.ackState == ackDelayed {
		if now >= s.ackDeadline {
			s.ackState = ackDue
		} else {
			next = min(next, s.ackDeadline)
		}
	}
	return next
}
