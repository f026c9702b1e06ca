package machine

// askNap proposes to leave the pair and sleep.
func (s *step) askNap() {
	if s.Settled() {
		s.nap, s.asked = s.in, s.in
		s.send(Nap, s.nap)
	}
}

// peerNap is the peer's proposal to sleep.
func (s *step) peerNap(msg Msg, busy bool) {
	p := msg.Pair
	switch {
	case s.offer != None: // it will hear of the offer, which is an answer
	case s.slept == p && s.out == None && p != None:
		s.send(Asleep, p) // again
	case s.nap == p && p != None, s.Settled() && s.in == p && !busy:
		s.leave(p)
		s.send(Asleep, p)
	default:
		s.send(Stay, p)
	}
}

// peerAsleep is the peer's word that it has left the pair.
func (s *step) peerAsleep(msg Msg) {
	if s.out == msg.Pair && s.out != None && s.offer == None && s.next == None && !s.SaidBye() {
		s.leave(msg.Pair)
	}
	if s.nap == msg.Pair {
		s.nap = None
	}
}

func (s *step) leave(p PairID) {
	s.nap, s.slept = None, p
	s.write(None)
}

// mayLeave reports whether a peer that stops sending in the pair read now may do
// so: it was asked to, or says that it did, or goes on elsewhere.
func (m *Machine) mayLeave() bool {
	return m.in != None && (m.asked == m.in || m.slept == m.in || m.resume != None)
}
