package machine

// Crossed OPENs, without ThreeWay: both sides have sent OPEN and may have sent data on their own
// pairs. The winner replies OPEN_CROSSED and reads the loser's pair. The loser replies ACCEPT with
// Old set to its own pair, writes a marker into that pair and switches to the winner's pair.
//
// Invariant: the winner reads the loser's pair up to the marker before it reads its own pair. So
// the loser's data keeps its order, whichever of the messages arrives first.

// connect initiates the connection.
func (s *step) connect() {
	s.state = StateOpening
	s.proposed = s.createPair()
	s.agreed = s.proposed
	if !s.conf.ThreeWay {
		s.switchTx(s.proposed)
	}
	s.send(MsgOpen, s.proposed)
}

// createPair requests the next local pair.
func (s *step) createPair() PairID {
	s.created++
	p := localPair(s.created)
	s.emit(Action{Kind: ActionCreate, Pair: p})
	return p
}

// stepOpen handles the messages of the open handshake without ThreeWay.
func (s *step) stepOpen(msg Msg) {
	p := msg.Pair
	switch msg.Kind {
	case MsgOpen:
		if !p.isRemote() {
			s.violation()
			return
		}
		s.remote, s.peer = msg.From, msg.Worker
		if s.isDuplicate(msg) {
			return
		}
		switch {
		case s.state == StateIdle:
			s.lastRemote, s.agreed, s.state = p, p, StateOpen
			s.reply(s.newMsg(MsgAccept, p))
			s.switchRx(p)
			s.switchTx(p)

		case s.state != StateOpening:
			s.violation()

		case s.WinsCrossing(msg.Worker, msg.From):
			s.lastRemote = p
			s.reply(s.newMsg(MsgOpenCrossed, p))
			s.switchRx(p)

		default: // the local initiation yields
			s.lastRemote = p
			accept := s.newMsg(MsgAccept, p)
			accept.Old = s.proposed
			s.reply(accept)
			s.proposed, s.agreed, s.state = None, p, StateOpen
			s.switchTx(p)
			s.switchRx(p)
			if s.txState >= txClosed {
				s.send(MsgClose, s.lastTx) // the peer may not read the pair any more that the first CLOSE named
			}
		}

	case MsgAccept:
		if s.state != StateOpening {
			return // a retransmission
		}
		crossed := s.lastRemote != None // the peer's OPEN has arrived
		if p != s.proposed || msg.Old != None && !msg.Old.isRemote() || crossed && msg.Old != s.lastRemote {
			s.violation()
			return
		}
		switch {
		case msg.Old == None:
			s.switchRx(p)
		case !crossed: // the ACCEPT replaces the OPEN that has yet to arrive
			s.lastRemote, s.lastReply = msg.Old, Msg{}
			s.switchRx(msg.Old)
		}
		s.remote, s.peer = msg.From, msg.Worker
		s.state, s.proposed, s.agreed = StateOpen, None, p

	case MsgOpenCrossed:
		s.remote = msg.From

	case MsgReject:
		s.fail(ReasonRejected)

	default: // no other message has this role
	}
}

// isDuplicate reports whether the message proposes a pair that was replied to before. For the last
// such pair it retransmits the reply.
func (s *step) isDuplicate(msg Msg) bool {
	if s.lastRemote == None || msg.Pair > s.lastRemote {
		return false
	}
	if msg.Pair == s.lastRemote {
		s.resendReply()
	}
	return true
}

// reply sends a reply and stores it for retransmission.
func (s *step) reply(a Msg) {
	s.lastReply = a
	s.emit(Action{Kind: ActionSend, Msg: a})
}

// resendReply retransmits the reply to the peer's last proposal. It does not if that reply carries
// the QP endpoint info of a pair that is no longer in use.
func (s *step) resendReply() {
	a := s.lastReply
	if a.Kind == 0 || s.conf.ThreeWay && a.CarriesQPInfo() && !s.Uses(a.Pair) {
		return
	}
	a.To = s.remote
	s.emit(Action{Kind: ActionSend, Msg: a})
}

// attachFailed handles a message whose pairs cannot be attached.
func (s *step) attachFailed(msg Msg) {
	switch {
	case msg.Kind == MsgOpen && (s.state == StateIdle || s.conf.ThreeWay && s.state == StateOpening):
		s.remote = msg.From
		s.send(MsgReject, msg.Pair)
		s.fail(ReasonRejected)
	case msg.Kind != MsgMigrate:
		s.violation()
	case s.roleOf(msg) == migration && s.needsReply(msg):
		s.sendMigrateNak(msg.Pair)
	}
}
