package arq

import (
	"math/bits"
	"time"

	"github.com/goucx/goucx/ucs"
)

// An ACK frees packets, and it is the only clock of an open flow: it measures round trips,
// shows which packets are lost, and moves the window.
//
// Transmissions are numbered in the order in which they are sent, retransmissions included
// (txPacket.tx). That order decides what is lost, not the order of sequence numbers. So a
// packet that is lost again after its retransmission is detected like any other.
//
// Invariant: newest is the latest transmission that is known to have arrived. A packet whose
// last transmission is later is in flight and never counts as lost. So however many ACKs
// report a gap, each packet in it is retransmitted once per loss.
//
// Invariant: the marks arrived and lost exclude each other. A packet that arrives after it
// counted as lost leaves numLost, and is not retransmitted any more.

// HandleAck processes an ACK and appends the slots of the packets that have arrived to free.
// sel reports packets after the cumulative ACK; nil: the ACK is piggybacked and reports none.
// An ACK before una or after nextTx changes nothing.
//
// It frees the arrived packets first. Then it updates the round-trip time, detects lost
// packets, adapts the window and restarts the timer. It detects losses and grows the window
// only if the ACK reports a newer transmission than all before.
//
//hot:bench BenchmarkFlow
func (s *Sender) HandleAck(ack Seq, window uint8, sel *Selective, now ucs.Time, free []uint32) []uint32 {
	n := ack.Diff(s.una)
	if s.state != Open || n < 0 || uint32(n) > uint32(s.nextTx-s.una) {
		return free
	}
	oldNewest, repeated := s.newest, false
	mask := len(s.ring) - 1
	for ; s.una != ack; s.una++ {
		e := &s.ring[int(s.una)&mask]
		if e.mark&arrived == 0 {
			if e.slot < endAllSlot {
				free = append(free, e.slot)
			}
			repeated = repeated || e.mark != 0
			s.noteArrival(e)
		}
	}
	if sel != nil && sel[0]|sel[1]|sel[2]|sel[3] != 0 {
		free = s.applySelective(sel, free)
		repeated = true
	}
	edge := ack + Seq(window)
	if s.newest != oldNewest || edge.Diff(s.windowEnd) > 0 {
		s.backoff = 0
	}
	s.windowEnd = edge
	if s.newest != oldNewest {
		if s.newestOnce { // else the ACK may be of any of its transmissions (Karn's algorithm)
			s.updateRTT(now.Sub(s.newestAt))
		}
		if repeated {
			s.detectLoss()
		}
		// The window doubles per round trip at first (slow start), and grows by one packet per
		// round trip after a loss. It does not grow while lost packets are outstanding.
		switch {
		case s.numLost != 0 || s.una.Diff(s.recovery) < 0:
		case s.cwnd < s.ssthresh:
			s.cwnd += uint32(n)
		default:
			if s.ackCount += uint32(n); s.ackCount >= s.cwnd {
				s.ackCount -= s.cwnd
				s.cwnd++
			}
		}
		s.cwnd = min(s.cwnd, s.conf.Window)
	}
	s.lastReply, s.probes = now, 0
	s.resetTimer(now)
	if s.una == s.next && s.ended {
		s.done()
		return free
	}
	s.updatePushLimit()
	return free
}

// noteArrival records the arrival of a packet, and whether its transmission is the newest that
// has arrived.
func (s *Sender) noteArrival(e *txPacket) {
	if e.mark&lost != 0 {
		s.numLost--
	} else {
		s.inFlight--
	}
	if int32(e.tx-s.newest) > 0 {
		s.newest, s.newestAt, s.newestOnce = e.tx, e.sentAt, e.mark&retransmitted == 0
	}
}

// applySelective marks the packets that sel reports as arrived.
func (s *Sender) applySelective(sel *Selective, free []uint32) []uint32 {
	for w, word := range sel {
		for ; word != 0; word &= word - 1 {
			q := s.una + 1 + Seq(64*w+bits.TrailingZeros64(word))
			if q.Diff(s.nextTx) >= 0 {
				return free
			}
			e := s.at(q)
			if e.mark&arrived != 0 {
				continue
			}
			s.noteArrival(e)
			e.mark = e.mark&^lost | arrived
			if e.slot < endAllSlot {
				free = append(free, e.slot)
			}
		}
	}
	return free
}

// detectLoss marks packets as lost by comparison with the newest transmission that has arrived,
// and reduces the window at the first loss of a loss event. A packet is lost if it was sent at least s.reordering transmissions before that one. It is
// also lost if it was sent half a round trip plus the variance before. This time grows with
// s.reordering, up to a bound.
//
// Source: RFC 8985, for the rule by time.
func (s *Sender) detectLoss() {
	was := s.numLost
	late := min((s.srtt/2+s.rttvar)*time.Duration(s.reordering)/minReordering, 2*s.srtt+4*s.rttvar)
	s.firstLost = s.una
	for q := s.una; q != s.nextTx; q++ {
		e := s.at(q)
		if e.mark&(arrived|lost) != 0 {
			continue
		}
		ahead := int32(s.newest - e.tx)
		if ahead >= int32(s.reordering) || ahead > 0 && s.newestAt.Sub(e.sentAt) > late {
			e.mark |= lost
			s.numLost++
			s.inFlight--
		}
	}
	if s.numLost == was || s.una.Diff(s.recovery) < 0 {
		return
	}

	// The first loss of a loss event reduces the window: by one half if the smoothed round-trip
	// time has grown, which indicates congestion, else by an eighth.
	s.recovery = s.nextTx
	if s.numResent != 0 { // some of the packets retransmitted before had been lost
		s.reordering = max(s.reordering/2, minReordering)
	}
	s.priorCwnd, s.numResent = s.cwnd, 0
	cut := s.cwnd / 8
	if s.srtt > s.minRTT+s.minRTT/2 {
		cut = s.cwnd / 2
	}
	s.cwnd = max(s.cwnd-cut, min(minWindow, s.conf.Window))
	s.ssthresh = s.cwnd
}

// HandleDuplicates processes the number of duplicates that the receiver reports in an Ack. A
// duplicate of a retransmitted packet means that it was reordered, not lost, so
// s.reordering grows. If all packets retransmitted since the last loss event arrived
// twice, the window returns to its size before that event.
func (s *Sender) HandleDuplicates(n uint32) {
	more := n - s.duplicates
	if more == 0 || int32(more) < 0 || s.state != Open {
		return
	}
	s.duplicates = n
	if s.numResent == 0 {
		return // the network duplicated a packet
	}
	s.reordering = min(s.reordering+more, maxReordering)
	if s.numResent -= min(more, s.numResent); s.numResent == 0 && s.priorCwnd > s.cwnd {
		s.cwnd, s.ssthresh, s.recovery = s.priorCwnd, max(s.ssthresh, s.priorCwnd), s.una
		s.updatePushLimit()
	}
}

// updatePushLimit updates the limit up to which messages are accepted.
func (s *Sender) updatePushLimit() {
	if s.ended {
		return
	}
	s.pushLimit = s.una + Seq(s.cwnd)
	if s.windowEnd.Diff(s.pushLimit) < 0 {
		s.pushLimit = s.windowEnd
	}
}
