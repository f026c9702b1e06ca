package machine

// close ends this side's sending. An offer without an answer comes first, so
// that the peer knows where the end is.
func (s *step) close() {
	if s.SaidBye() || s.state == Idle {
		return
	}
	s.nap = None
	s.closing = true
	if s.state == Opening || s.offer == None {
		s.sayBye()
	}
}

// endIfClosing says the bye that waited for an answer.
func (s *step) endIfClosing() {
	if s.closing && !s.saidBye && s.offer == None {
		s.sayBye()
	}
}

func (s *step) sayBye() {
	s.saidBye = true
	s.lastOut = s.out
	if s.out != None {
		s.write(End)
	}
	s.send(Bye, s.lastOut)
}

// bye is the peer's word that it sends no more.
func (s *step) bye(msg Msg) {
	if s.conf.Timeout != 0 {
		s.send(ByeAck, None)
	}
	if s.heardBye {
		return
	}
	s.heardBye, s.lastIn = true, msg.Pair
	s.nap = None
}
