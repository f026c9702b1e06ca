package machine

// close ends this side's sending. An offer without an answer comes first, so
// that the peer knows where the end is; so does the readiness of a pair.
func (s *step) close() {
	if s.SaidBye() || s.state == Idle {
		return
	}
	s.nap = None
	s.closing = true
	if s.state == Opening && !s.conf.TwoStep || s.offer == None && s.next == None {
		s.sayBye()
	}
}

// endIfClosing says the bye that waited for an answer.
func (s *step) endIfClosing() {
	if s.closing && !s.saidBye && s.offer == None && s.next == None {
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

// gone is the peer's word that it does not have the connection any more.
func (s *step) gone() {
	switch {
	case s.saidBye && s.heardBye:
		s.acked = true // it has ended, and so heard this side's end
	case s.next != None && s.answer.Kind == Accept:
		s.fail(Stale)
	default:
		s.fail(PeerLost)
	}
}

// Stray answers a message to the worker that names a connection which it does not
// have, and reports whether there is an answer: one that has ended, or one of a
// worker that was there before. A hello that nobody else takes begins one.
func Stray(worker [16]byte, msg Msg) (Msg, bool) {
	switch {
	case msg.To == 0, msg.Kind == Hello, msg.Kind == Refuse, msg.Kind == ByeAck, msg.Kind == Gone:
		return Msg{}, false
	}
	return Msg{Kind: Gone, Worker: worker, From: msg.To, To: msg.From}, true
}
