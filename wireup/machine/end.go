package machine

// Close: each direction is closed separately. A side writes the end marker into its send pair and
// sends CLOSE, which names that pair. The connection is closed when both sides have sent CLOSE and
// the reader has found the peer's end marker. A suspended peer writes none. With Config.Timeout,
// CLOSE_ACK must have arrived too.
//
// Invariant: a side switches to no pair after its CLOSE. So CLOSE waits while a MIGRATE has no
// reply or a pending send pair is not ready.

// close closes the send direction. CLOSE waits for the reply to a MIGRATE, so that the peer knows
// which pair holds the end marker. It also waits until a pending send pair is ready.
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

// endIfClosing sends the CLOSE that waited for a reply.
func (s *step) endIfClosing() {
	if s.closing && !s.saidBye && s.offer == None && s.next == None {
		s.sayBye()
	}
}

// sayBye writes the end marker and sends CLOSE.
func (s *step) sayBye() {
	s.saidBye = true
	s.lastOut = s.out
	if s.out != None {
		s.write(End)
	}
	s.send(Bye, s.lastOut)
}

// bye handles CLOSE.
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

// gone handles RESET.
func (s *step) gone() {
	switch {
	case s.saidBye && s.heardBye:
		s.acked = true // the peer has closed the connection, so it received the local CLOSE
	case s.next != None && s.answer.Kind == Accept:
		s.fail(Stale)
	default:
		s.fail(PeerLost)
	}
}

// Stray returns the reply to a message for a connection that the worker does not have, and whether
// there is a reply. Such a connection has ended, or belonged to an earlier worker. A hello (OPEN)
// for no known connection begins a new one instead.
func Stray(worker [16]byte, msg Msg) (Msg, bool) {
	switch {
	case msg.To == 0, msg.Kind == Hello, msg.Kind == Refuse, msg.Kind == ByeAck, msg.Kind == Gone:
		return Msg{}, false
	}
	return Msg{Kind: Gone, Worker: worker, From: msg.To, To: msg.From}, true
}
