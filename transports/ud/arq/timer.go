package arq

import (
	"math"
	"time"

	"github.com/goucx/goucx/ucs"
)

// never is the deadline of a timer that is not set.
const never = ucs.Time(math.MaxInt64)

// updateRTT updates the smoothed round-trip time with the round trip r.
//
// Source: RFC 6298, 2.
func (s *Sender) updateRTT(r time.Duration) {
	r = max(r, 0)
	if s.srtt == 0 || r < s.minRTT {
		s.minRTT = r
	}
	if s.srtt == 0 {
		s.srtt, s.rttvar = max(r, 1), r/2
		return
	}
	s.rttvar += ((s.srtt - r).Abs() - s.rttvar) / 4
	s.srtt = max(s.srtt+(r-s.srtt)/8, 1)
}

// rto returns the current retransmission time-out. It contains a pseudo-random part, so
// that flows that were interrupted together do not retransmit at the same time.
func (s *Sender) rto() time.Duration {
	d := s.conf.FirstRTO
	if s.srtt != 0 {
		d = max(s.srtt+4*s.rttvar, s.conf.MinRTO)
	}
	d = min(d<<min(s.backoff, 16), s.conf.MaxRTO)
	jitter := (uint32(s.una) + s.tx*0x9E3779B1) * 0x85EBCA6B >> 24
	return d + d*time.Duration(jitter)/1024
}

// resetTimer restarts the timer. It expires after the retransmission time-out while the flow
// opens, has unacknowledged packets, or has no window; else when a keepalive is due.
func (s *Sender) resetTimer(now ucs.Time) {
	switch {
	case s.una != s.next, s.state == Opening, !s.ended && s.windowEnd.Diff(s.next) <= 0:
		s.due = now.Add(s.rto())
	default:
		s.backoff = 0
		s.due = now.Add(s.conf.KeepAlive)
	}
}

// Action is the action that Tick requests.
type Action uint8

// Actions of Tick.
const (
	// Nothing: no action.
	Nothing Action = iota
	// SendConnect: send the Connect of the flow.
	SendConnect
	// SendProbe: send a packet with header word ProbeWord.
	SendProbe
	// ResendOldest: send the result of RetransmitOldest.
	ResendOldest
	// FlowFailed: the flow has failed.
	FlowFailed
)

// Tick runs the expired timer and returns the action to take.
func (s *Sender) Tick(now ucs.Time) Action {
	if now < s.due || s.state > Open {
		return Nothing
	}
	if late := now.Sub(s.due); late > pauseThreshold {
		s.lastReply = s.lastReply.Add(late)
	}
	if s.probes >= minProbes && now.Sub(s.lastReply) > s.conf.PeerTimeout {
		s.Fail(TimedOut)
		return FlowFailed
	}
	if s.probes != 0 || s.nextTx == s.una { // the first probe may find the peer computing
		s.backoff = min(s.backoff+1, 16)
	}
	s.probes = min(s.probes+1, 200)
	act := SendProbe
	switch {
	case s.state == Opening:
		act = SendConnect
	case s.nextTx != s.una:
		act = ResendOldest
		// The first time-out may be due to a lost ACK, or to a peer that computes.
		if s.probes > 1 {
			s.cwnd = min(minWindow, s.conf.Window)
			s.ssthresh = max(s.ssthresh/2, s.cwnd)
			s.recovery = s.nextTx
			s.updatePushLimit()
		}
	}
	s.due = now.Add(s.rto())
	return act
}

// RetransmitOldest retransmits the oldest packet that has not arrived, with a request for an ACK.
func (s *Sender) RetransmitOldest(now ucs.Time) (slot uint32, a uint64) {
	q := s.una // not arrived, or una would be beyond it
	if s.at(q).mark&lost != 0 {
		s.numLost--
		s.inFlight++
	}
	slot, a = s.retransmit(q, now)
	return slot, a | ackReqBit
}

// ProbeWord returns the first header word of a Probe.
func (s *Sender) ProbeWord() uint64 { return wordA(Control, Probe, s.to, s.next) | ackReqBit }

// ProbePending reports whether a probe or retransmission is unanswered.
func (s *Sender) ProbePending() bool { return s.state <= Open && s.probes != 0 }

// Unresponsive reports whether several probes in a row are unanswered.
func (s *Sender) Unresponsive() bool { return s.probes >= minProbes }

// RequestProbe makes the next Tick return SendProbe if the flow is open and idle.
func (s *Sender) RequestProbe(now ucs.Time) {
	if s.state == Open && s.una == s.next {
		s.due = now
	}
}

// Quiescent reports whether the flow only waits for its next message.
func (s *Sender) Quiescent() bool {
	return s.state == Open && s.una == s.next && s.probes == 0 && !s.ended && s.windowEnd.Diff(s.next) > 0
}
