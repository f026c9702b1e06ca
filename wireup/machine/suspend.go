package machine

// Suspension: a quiescent side sends SUSPEND for the current pair. A quiescent peer that is not
// busy writes a marker to None and replies SUSPEND_ACK. Then the initiator writes its marker too.
// Once both markers are read, both sides retire the pair. MIGRATE with Resume ends the suspension.
//
// Invariant: a marker to None is valid only in a pair for which the local side sent SUSPEND or
// SUSPEND_ACK. It is also valid when the peer has resumed in another pair. When SUSPENDs cross,
// both sides suspend. While a local MIGRATE is outstanding it takes precedence over the peer's
// SUSPEND.

// suspend proposes to suspend the connection.
func (s *step) suspend() {
	switch {
	case s.Quiescent():
		s.suspending, s.suspendSent = s.rx, s.rx
		s.send(MsgSuspend, s.suspending)
	case s.tx != None && s.rx == None && s.suspendSent == s.tx && s.canPropose() && !s.rxEnded:
		// The peer has suspended its direction at the local request, and the only reply that
		// arrived is a late SUSPEND_NAK.
		s.suspendTx(s.tx)
	}
}

// stepSuspend handles the messages of a suspension. busy makes it reply SUSPEND_NAK.
func (s *step) stepSuspend(msg Msg, busy bool) {
	p := msg.Pair
	switch msg.Kind {
	case MsgSuspend:
		switch {
		case s.proposed != None: // the peer receives the local MIGRATE, which serves as the reply
		case s.suspended == p && s.tx == None && p != None:
			s.send(MsgSuspendAck, p) // retransmission
		case s.suspending == p && p != None, s.Quiescent() && s.rx == p && !busy:
			s.suspendTx(p)
			s.send(MsgSuspendAck, p)
		default:
			s.send(MsgSuspendNak, p)
		}

	case MsgSuspendAck:
		if s.tx == p && s.tx != None && s.proposed == None && s.txPending == None && !s.Closing() {
			s.suspendTx(p)
		}
		if s.suspending == p {
			s.suspending = None
		}

	case MsgSuspendNak:
		if s.suspending == p {
			s.suspending = None
		}

	default: // no other message has this role
	}
}

// suspendTx suspends the send direction.
func (s *step) suspendTx(p PairID) {
	s.suspending, s.suspended = None, p
	s.switchTx(None)
}
