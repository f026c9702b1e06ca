package machine

// Migration: the initiator creates a pair and sends MIGRATE. The target replies MIGRATE_ACK and
// switches its send direction, with TwoStep once the initiator is ready. The initiator switches
// its send direction when MIGRATE_ACK arrives.
//
// Invariant: a receiver switches at the marker, so each direction keeps its order. A suspended
// sender has no pair for a marker, so it sets Resume in its message. The receiver then reads the
// new pair at once. If it has yet to read the marker to None, it reads the new pair after that.
//
// Crossed MIGRATEs: the winner ignores the loser's. The loser accepts the winner's and withdraws
// its own with Old. A side whose reader has not reached the last agreed pair replies MIGRATE_NAK;
// at most one migration is in progress.

// propose sends MIGRATE for a new local pair.
func (s *step) propose() {
	s.offer = s.make()
	s.sendOffer()
}

// sendOffer sends, or retransmits, MIGRATE for the proposed pair.
func (s *step) sendOffer() {
	msg := s.message(Offer, s.offer)
	msg.Old, msg.Resume = s.theirs, s.out == None
	s.do(Action{Kind: Send, Msg: msg})
}

// offered handles MIGRATE.
func (s *step) offered(msg Msg) {
	if !msg.Pair.theirs() {
		s.fail(Broken)
		return
	}
	if !s.fresh(msg) {
		return
	}
	if !s.calm() {
		s.decline(msg.Pair)
		return
	}
	take := s.message(Take, msg.Pair)
	take.Old = s.offer
	s.theirs, s.offer, s.nap = msg.Pair, None, None
	s.newest = msg.Pair
	take.Resume, take.Closing = s.out == None, s.saidBye
	s.reply(take)
	s.enter(msg.Pair)
	if msg.Resume {
		s.goOn(msg.Pair)
	}
	s.endIfClosing()
}

// fresh reports whether a MIGRATE needs a reply now. A peer that proposes another pair is ready in
// the one before, so fresh confirms that one.
func (s *step) fresh(msg Msg) bool {
	if s.repeat(msg) || s.passOver(msg) {
		return false
	}
	s.confirm(s.next)
	return true
}

// passOver reports whether a MIGRATE gets no reply because it crosses a local one that the peer
// has replied to already, or that wins.
func (m *Machine) passOver(msg Msg) bool {
	return m.offer != None && (msg.Old == m.offer || m.smaller(m.peer, m.remote))
}

// decline sends MIGRATE_NAK for p. It also withdraws the local MIGRATE, which the peer may have
// ignored in favor of its own.
func (s *step) decline(p PairID) {
	s.theirs, s.nap = p, None
	a := s.message(Decline, p)
	a.Old, s.offer = s.offer, None
	s.reply(a)
	s.endIfClosing()
}

// goOn resumes reading in p, where a suspended peer sends again.
func (s *step) goOn(p PairID) {
	if s.in == None {
		s.read(p)
		return
	}
	s.resume = p
}

// takenUp handles MIGRATE_ACK.
func (s *step) takenUp(msg Msg) {
	s.withdrawn(msg.Old)
	if s.offer != msg.Pair || msg.Pair == None {
		s.readyAgain(msg.Pair)
		return
	}
	resumes := msg.Resume && !msg.Closing
	if resumes && !s.newer(msg.Pair) {
		s.fail(Broken) // a marker led to this pair already, and a suspended peer writes none
		return
	}
	s.offer, s.newest = None, msg.Pair
	s.join(msg.Pair)
	s.write(msg.Pair)
	if resumes {
		s.goOn(msg.Pair)
	}
	s.endIfClosing()
}

// declined handles MIGRATE_NAK.
func (s *step) declined(msg Msg) {
	s.withdrawn(msg.Old)
	if s.offer == msg.Pair && s.state == Open {
		s.offer = None
		s.endIfClosing()
	}
}

// withdrawn records that the peer's MIGRATE for p is void. It may still arrive.
func (s *step) withdrawn(p PairID) {
	if p != None && !p.Mine() && p > s.theirs {
		s.theirs, s.answer = p, Msg{}
	}
}
