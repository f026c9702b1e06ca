package machine

// propose offers the peer another pair.
func (s *step) propose() {
	s.offer = s.make()
	s.sendOffer()
}

func (s *step) sendOffer() {
	msg := s.message(Offer, s.offer)
	msg.Old, msg.Resume = s.theirs, s.out == None
	s.do(Action{Kind: Send, Msg: msg})
}

// offered is the peer's offer of a pair.
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

// fresh reports whether an offer is one to be answered. Who makes another is ready
// in the one before.
func (s *step) fresh(msg Msg) bool {
	if s.repeat(msg) || s.passOver(msg) {
		return false
	}
	s.confirm(s.next)
	return true
}

// passOver reports whether an offer gets no answer now, since one of this side's
// is under way: the peer has answered that already, or will take it instead.
func (m *Machine) passOver(msg Msg) bool {
	return m.offer != None && (msg.Old == m.offer || m.smaller(m.peer, m.remote))
}

// decline does not use the pair offered, and withdraws an offer of this side's
// that the peer may have passed over for its own.
func (s *step) decline(p PairID) {
	s.theirs, s.nap = p, None
	a := s.message(Decline, p)
	a.Old, s.offer = s.offer, None
	s.reply(a)
	s.endIfClosing()
}

// goOn reads p where the peer, who was asleep, sends again.
func (s *step) goOn(p PairID) {
	if s.in == None {
		s.read(p)
		return
	}
	s.resume = p
}

// takenUp is the peer's answer that it uses the pair offered.
func (s *step) takenUp(msg Msg) {
	s.withdrawn(msg.Old)
	if s.offer != msg.Pair || msg.Pair == None {
		s.readyAgain(msg.Pair)
		return
	}
	resumes := msg.Resume && !msg.Closing
	if resumes && !s.newer(msg.Pair) {
		s.fail(Broken) // a marker led there, and who is asleep writes none
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

// declined is the peer's answer that it does not use the pair offered.
func (s *step) declined(msg Msg) {
	s.withdrawn(msg.Old)
	if s.offer == msg.Pair && s.state == Open {
		s.offer = None
		s.endIfClosing()
	}
}

// withdrawn notes that an offer of the peer's, which may yet come, is void.
func (s *step) withdrawn(p PairID) {
	if p != None && !p.Mine() && p > s.theirs {
		s.theirs, s.answer = p, Msg{}
	}
}
