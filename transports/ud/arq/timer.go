package arq

import (
	"math"
	"time"

	"github.com/goucx/goucx/ucs"
)

// never is the deadline of who waits for nothing.
const never = ucs.Time(math.MaxInt64)

// measure takes a round trip.
//
// Source: RFC 6298, 2.
func (s *Sender) measure(r time.Duration) {
	r = max(r, 0)
	if s.srtt == 0 || r < s.least {
		s.least = r
	}
	if s.srtt == 0 {
		s.srtt, s.rttvar = max(r, 1), r/2
		return
	}
	s.rttvar += ((s.srtt - r).Abs() - s.rttvar) / 4
	s.srtt = max(s.srtt+(r-s.srtt)/8, 1)
}

// rto is how long to wait now, with a part by chance, so that many flows of one
// fate do not ask at one time.
func (s *Sender) rto() time.Duration {
	d := s.conf.FirstRTO
	if s.srtt != 0 {
		d = max(s.srtt+4*s.rttvar, s.conf.MinRTO)
	}
	d = min(d<<min(s.backoff, 16), s.conf.MaxRTO)
	chance := (uint32(s.una) + s.tx*0x9E3779B1) * 0x85EBCA6B >> 24
	return d + d*time.Duration(chance)/1024
}

// wait sets the time after which Tick asks.
func (s *Sender) wait(now ucs.Time) {
	switch {
	case s.una != s.next, s.state == Opening, !s.ended && s.edge.Diff(s.next) <= 0:
		s.due = now.Add(s.rto())
	default:
		s.backoff = 0
		s.due = now.Add(s.conf.KeepAlive)
	}
}

// Act is what Tick wants done.
type Act uint8

// Acts.
const (
	// Nothing is due.
	Nothing Act = iota
	// SendConnect: send a Connect.
	SendConnect
	// SendPoke: send what Poke gives.
	SendPoke
	// SendOldest: send what Oldest gives.
	SendOldest
	// Over: the flow has failed.
	Over
)

// Tick says what to do when time has passed.
func (s *Sender) Tick(now ucs.Time) Act {
	if now < s.due || s.state > Open {
		return Nothing
	}
	if late := now.Sub(s.due); late > stopped {
		s.heard = s.heard.Add(late)
	}
	if s.probes >= minProbes && now.Sub(s.heard) > s.conf.Silence {
		s.Fail(Silent)
		return Over
	}
	if s.probes != 0 || s.sent == s.una { // a first question may find the peer computing
		s.backoff = min(s.backoff+1, 16)
	}
	s.probes = min(s.probes+1, 200)
	act := SendPoke
	switch {
	case s.state == Opening:
		act = SendConnect
	case s.sent != s.una:
		act = SendOldest
		if s.probes > 1 { // the first may be for an answer that was lost, or a peer that computes
			s.cwnd = min(minWindow, s.conf.Window)
			s.slow = max(s.slow/2, s.cwnd)
			s.recover = s.sent
			s.admit()
		}
	}
	s.due = now.Add(s.rto())
	return act
}

// Oldest transmits the oldest packet that has not arrived anew and asks for an
// answer.
func (s *Sender) Oldest(now ucs.Time) (slot uint32, a uint64) {
	q := s.una // it has not arrived, or una were beyond it
	if s.at(q).mark&lost != 0 {
		s.missing--
		s.flying++
	}
	slot, a = s.repeat(q, now)
	return slot, a | askBit
}

// Poke is the first word of a packet that asks for an answer.
func (s *Sender) Poke() uint64 { return wordA(Control, Poke, s.to, s.next) | askBit }

// Asked reports whether a question is without an answer.
func (s *Sender) Asked() bool { return s.state <= Open && s.probes != 0 }

// Silent reports whether the receiver has left several questions unanswered.
func (s *Sender) Silent() bool { return s.probes >= minProbes }

// Ask has the next Tick ask whether the peer is there, where nothing is under way.
func (s *Sender) Ask(now ucs.Time) {
	if s.state == Open && s.una == s.next {
		s.due = now
	}
}

// Resting reports whether the flow waits for nothing but its next message.
func (s *Sender) Resting() bool {
	return s.state == Open && s.una == s.next && s.probes == 0 && !s.ended && s.edge.Diff(s.next) > 0
}
