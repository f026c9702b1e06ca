package machine

// Suspension: a quiescent side sends SUSPEND for the current pair. A quiescent peer that is not
// busy writes a marker to None and replies SUSPEND_ACK. Then the initiator writes its marker too.
// Once both markers are read, both sides retire the pair. MIGRATE with Resume ends the suspension.
//
// Invariant: a marker to None is valid only in a pair for which the local side sent SUSPEND or
// SUSPEND_ACK. It is also valid when the peer has resumed in another pair. When SUSPENDs cross,
// both sides suspend. While a local MIGRATE is outstanding it takes precedence over the peer's
// SUSPEND.

// askNap proposes to suspend the connection.
func (s *step) askNap() {
	switch {
	case s.Settled():
		s.nap, s.asked = s.in, s.in
		s.send(Nap, s.nap)
	case s.halfAsleep():
		s.leave(s.out)
	}
}

// halfAsleep reports whether the peer has suspended its direction at the local request, and the
// only reply that arrived is a late SUSPEND_NAK.
func (m *Machine) halfAsleep() bool {
	return m.out != None && m.in == None && m.asked == m.out && m.free() && !m.inEnded
}

// peerNap handles SUSPEND. busy makes it reply SUSPEND_NAK.
func (s *step) peerNap(msg Msg, busy bool) {
	p := msg.Pair
	switch {
	case s.offer != None: // the peer receives the local MIGRATE, which serves as the reply
	case s.slept == p && s.out == None && p != None:
		s.send(Asleep, p) // retransmission
	case s.nap == p && p != None, s.Settled() && s.in == p && !busy:
		s.leave(p)
		s.send(Asleep, p)
	default:
		s.send(Stay, p)
	}
}

// peerAsleep handles SUSPEND_ACK.
func (s *step) peerAsleep(msg Msg) {
	if s.out == msg.Pair && s.out != None && s.offer == None && s.next == None && !s.SaidBye() {
		s.leave(msg.Pair)
	}
	if s.nap == msg.Pair {
		s.nap = None
	}
}

// leave suspends the send direction.
func (s *step) leave(p PairID) {
	s.nap, s.slept = None, p
	s.write(None)
}

// mayLeave reports whether the peer may suspend the pair that is read now: the local side
// requested or acknowledged it, or the peer resumes in another pair.
func (m *Machine) mayLeave() bool {
	return m.in != None && (m.asked == m.in || m.slept == m.in || m.resume != None)
}
