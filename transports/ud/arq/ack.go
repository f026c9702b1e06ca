package arq

import (
	"math/bits"
	"time"

	"github.com/goucx/goucx/ucs"
)

// Acked takes an acknowledgement and appends the slots of what has arrived to
// free. sel is what arrived beyond it; nil: not told. One that is older than
// another before, or cannot be, changes nothing.
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
		if s.newOnce { // else it may be any of its transmissions that arrived (Karn)
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

// note counts a packet that arrived, and keeps which transmission was the last
// that did.
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

// selected marks what arrived beyond the acknowledged packets.
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

// find marks as lost what was overtaken by what arrived: by a few transmissions,
// or by half of a round trip; by more where packets overtake each other.
//
// Source: RFC 8985, of the time.
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

// narrow makes the window less after a loss: half where round trips have become
// longer too, which is what a full network does, else a little.
func (s *Sender) narrow() {
	s.recover = s.sent
	if s.repeated != 0 { // some of it had been lost indeed
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

// Repeated takes the number of packets that the receiver has had more than once.
// Where all that went again had not been lost, it was only late: the window is what
// it was, and more packets may overtake one from now on.
func (s *Sender) Repeated(n uint32) {
	more := n - s.twice
	if more == 0 || int32(more) < 0 || s.state != Open {
		return
	}
	s.twice = n
	if s.repeated == 0 {
		return // a packet that the network doubled
	}
	s.reordering = min(s.reordering+more, maxReordering)
	if s.repeated -= min(more, s.repeated); s.repeated == 0 && s.prior > s.cwnd {
		s.cwnd, s.slow, s.recover = s.prior, max(s.slow, s.prior), s.una
		s.admit()
	}
}

// widen lets the window grow by what was acknowledged: double it in a round trip
// at first, by one packet after a loss.
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

// admit sets how many messages may be accepted.
func (s *Sender) admit() {
	if s.ended {
		return
	}
	s.limit = s.una + Seq(s.cwnd)
	if s.edge.Diff(s.limit) < 0 {
		s.limit = s.edge
	}
}

// alive notes that the receiver hears us.
func (s *Sender) alive(now ucs.Time) { s.heard, s.probes = now, 0 }
