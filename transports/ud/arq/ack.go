package arq

import (
	"math/bits"
	"time"

	"github.com/goucx/goucx/ucs"
)

// Acked processes an ACK and appends the slots of the packets that have arrived to free.
// sel reports packets after the cumulative ACK; nil: the ACK is piggybacked and reports none.
// An ACK before una or after sent changes nothing.
//
// It frees the arrived packets first. Then it updates the round-trip time, detects lost
// packets, adapts the window and restarts the timer. It detects losses and grows the window
// only if the ACK reports a newer transmission than all before.
//
// hot: BenchmarkFlow.
func (s *Sender) Acked(ack Seq, window uint8, sel *Selective, now ucs.Time, free []uint32) []uint32 {
	n := ack.Diff(s.una)
	if s.state != Open || n < 0 || uint32(n) > uint32(s.sent-s.una) {
		return free
	}
	was, repeated := s.newest, false
	mask := len(s.ring) - 1
	for ; s.una != ack; s.una++ {
		e := &s.ring[int(s.una)&mask]
		if e.mark&arrived == 0 {
			if e.slot < endAllSlot {
				free = append(free, e.slot)
			}
			repeated = repeated || e.mark != 0
			s.note(e)
		}
	}
	if sel != nil && sel[0]|sel[1]|sel[2]|sel[3] != 0 {
		free = s.selected(sel, free)
		repeated = true
	}
	edge := ack + Seq(window)
	if s.newest != was || edge.Diff(s.edge) > 0 {
		s.backoff = 0
	}
	s.edge = edge
	if s.newest != was {
		if s.newOnce { // else the ACK may be of any of its transmissions (Karn's algorithm)
			s.measure(now.Sub(s.newAt))
		}
		if repeated {
			s.find()
		}
		s.widen(uint32(n))
	}
	s.alive(now)
	s.wait(now)
	if s.una == s.next && s.ended {
		s.finish()
		return free
	}
	s.admit()
	return free
}

// note records the arrival of a packet, and whether its transmission is the newest that
// has arrived.
func (s *Sender) note(e *sent) {
	if e.mark&lost != 0 {
		s.missing--
	} else {
		s.flying--
	}
	if int32(e.tx-s.newest) > 0 {
		s.newest, s.newAt, s.newOnce = e.tx, e.at, e.mark&again == 0
	}
}

// selected marks the packets that sel reports as arrived.
func (s *Sender) selected(sel *Selective, free []uint32) []uint32 {
	for w, word := range sel {
		for ; word != 0; word &= word - 1 {
			q := s.una + 1 + Seq(64*w+bits.TrailingZeros64(word))
			if q.Diff(s.sent) >= 0 {
				return free
			}
			e := s.at(q)
			if e.mark&arrived != 0 {
				continue
			}
			s.note(e)
			e.mark = e.mark&^lost | arrived
			if e.slot < endAllSlot {
				free = append(free, e.slot)
			}
		}
	}
	return free
}

// find marks packets as lost by comparison with the newest transmission that has arrived. A
// packet is lost if it was sent at least s.reordering transmissions before that one. It is
// also lost if it was sent half a round trip plus the variance before. This time grows with
// s.reordering, up to a bound.
//
// Source: RFC 8985, for the rule by time.
func (s *Sender) find() {
	was := s.missing
	late := min((s.srtt/2+s.rttvar)*time.Duration(s.reordering)/minReordering, 2*s.srtt+4*s.rttvar)
	s.resend = s.una
	for q := s.una; q != s.sent; q++ {
		e := s.at(q)
		if e.mark&(arrived|lost) != 0 {
			continue
		}
		ahead := int32(s.newest - e.tx)
		if ahead >= int32(s.reordering) || ahead > 0 && s.newAt.Sub(e.at) > late {
			e.mark |= lost
			s.missing++
			s.flying--
		}
	}
	if s.missing > was && s.una.Diff(s.recover) >= 0 {
		s.narrow()
	}
}

// narrow reduces the window at the first loss of a loss event. It takes one half if the
// smoothed round-trip time has grown, which indicates congestion, else an eighth.
func (s *Sender) narrow() {
	s.recover = s.sent
	if s.repeated != 0 { // some of the packets retransmitted before had been lost
		s.reordering = max(s.reordering/2, minReordering)
	}
	s.prior, s.repeated = s.cwnd, 0
	cut := s.cwnd / 8
	if s.srtt > s.least+s.least/2 {
		cut = s.cwnd / 2
	}
	s.cwnd = max(s.cwnd-cut, min(minWindow, s.conf.Window))
	s.slow = s.cwnd
}

// Repeated processes the number of duplicates that the receiver reports in an Ack. A
// duplicate of a retransmitted packet means that it was reordered, not lost, so
// s.reordering grows. If all packets retransmitted since the last loss event arrived
// twice, the window returns to its size before that event.
func (s *Sender) Repeated(n uint32) {
	more := n - s.twice
	if more == 0 || int32(more) < 0 || s.state != Open {
		return
	}
	s.twice = n
	if s.repeated == 0 {
		return // the network duplicated a packet
	}
	s.reordering = min(s.reordering+more, maxReordering)
	if s.repeated -= min(more, s.repeated); s.repeated == 0 && s.prior > s.cwnd {
		s.cwnd, s.slow, s.recover = s.prior, max(s.slow, s.prior), s.una
		s.admit()
	}
}

// widen grows the window after an ACK of n packets. It doubles per round trip at first
// (slow start), and grows by one packet per round trip after a loss. It does not grow while
// lost packets are outstanding.
func (s *Sender) widen(n uint32) {
	switch {
	case s.missing != 0 || s.una.Diff(s.recover) < 0:
	case s.cwnd < s.slow:
		s.cwnd += n
	default:
		if s.credit += n; s.credit >= s.cwnd {
			s.credit -= s.cwnd
			s.cwnd++
		}
	}
	s.cwnd = min(s.cwnd, s.conf.Window)
}

// admit updates the limit up to which messages are accepted.
func (s *Sender) admit() {
	if s.ended {
		return
	}
	s.limit = s.una + Seq(s.cwnd)
	if s.edge.Diff(s.limit) < 0 {
		s.limit = s.edge
	}
}

// alive records that the receiver has replied.
func (s *Sender) alive(now ucs.Time) { s.heard, s.probes = now, 0 }
