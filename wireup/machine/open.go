package machine

// Crossed OPENs, without ThreeWay: both sides have sent OPEN and may have sent data on their own
// pairs. The winner replies OPEN_CROSSED and reads the loser's pair. The loser replies ACCEPT with
// Old set to its own pair, writes a marker into that pair and switches to the winner's pair.
//
// Invariant: the winner reads the loser's pair up to the marker before it reads its own pair. So
// the loser's data keeps its order, whichever of the messages arrives first.

// connect initiates the connection.
func (s *step) connect() {
	if s.state != StateIdle {
		return
	}
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

// receive processes a message of the peer.
func (s *step) receive(ev Event) {
	msg := ev.Msg.flip()
	if !s.matches(msg) {
		return
	}
	if msg.To != 0 { // the peer knows the local connection ID
		s.tries = 0
	}
	switch msg.Kind {
	case MsgOpen:
		s.onOpen(msg)
	case MsgAccept:
		s.onAccept(msg)
	case MsgOpenCrossed:
		s.onOpenCrossed(msg)
	case MsgReject:
		s.fail(ReasonRejected)
	case MsgMigrate:
		s.onMigrate(msg)
	case MsgMigrateAck:
		s.onMigrateAck(msg)
	case MsgMigrateNak:
		s.onMigrateNak(msg)
	case MsgSuspend:
		s.onSuspend(msg, ev.Busy)
	case MsgSuspendAck:
		s.onSuspendAck(msg)
	case MsgSuspendNak:
		if s.suspending == msg.Pair {
			s.suspending = None
		}
	case MsgClose:
		s.onClose(msg)
	case MsgCloseAck:
		s.closeAcked = s.closeSent
	case MsgReady:
		s.onReady(msg.Pair)
	case MsgReset:
		s.onReset()
	default:
		s.fail(ReasonProtocolError)
	}
}

// matches reports whether the message belongs to this connection. It is false for late messages of an
// earlier connection and for those that overtook the first one.
func (m *Machine) matches(msg Msg) bool {
	if msg.To != 0 && msg.To != m.conf.Conn {
		return false
	}
	switch msg.Kind {
	case MsgOpen:
		return m.remote == 0 || msg.From == m.remote
	case MsgAccept, MsgOpenCrossed, MsgReject:
		return (m.remote == 0 || msg.From == m.remote) && m.state != StateIdle
	default:
	}
	return m.state == StateOpen && msg.From == m.remote || msg.Kind == MsgClose && m.state == StateOpening && msg.From == m.remote
}

// isDuplicate reports whether the message proposes a pair that was replied to before. For the last such
// pair it retransmits the reply.
func (s *step) isDuplicate(msg Msg) bool {
	if s.lastRemote == None || msg.Pair > s.lastRemote {
		return false
	}
	if msg.Pair == s.lastRemote {
		s.resendReply()
	}
	return true
}

// resendReply retransmits the reply to the peer's last proposal. It does not if that reply carries the
// QP endpoint info of a pair that is no longer in use.
func (s *step) resendReply() {
	a := s.lastReply
	if a.Kind == 0 || s.conf.ThreeWay && a.CarriesQPInfo() && !s.Uses(a.Pair) {
		return
	}
	a.To = s.remote
	s.emit(Action{Kind: ActionSend, Msg: a})
}

// reply sends a reply and stores it for retransmission.
func (s *step) reply(a Msg) {
	s.lastReply = a
	s.emit(Action{Kind: ActionSend, Msg: a})
}

// onOpen handles OPEN.
func (s *step) onOpen(msg Msg) {
	if !msg.Pair.isRemote() {
		s.fail(ReasonProtocolError)
		return
	}
	if s.conf.ThreeWay {
		s.onOpenThreeWay(msg)
		return
	}
	s.remote, s.peer = msg.From, msg.Worker
	if s.isDuplicate(msg) {
		return
	}
	switch s.state {
	case StateIdle:
		s.lastRemote, s.agreed, s.state = msg.Pair, msg.Pair, StateOpen
		s.reply(s.newMsg(MsgAccept, msg.Pair))
		s.switchRx(msg.Pair)
		s.switchTx(msg.Pair)
	case StateOpening:
		s.lastRemote = msg.Pair
		if s.wins(msg.Worker, msg.From) {
			s.reply(s.newMsg(MsgOpenCrossed, msg.Pair))
			s.switchRx(msg.Pair)
			return
		}
		s.yieldCrossing(msg.Pair)
	default:
		s.fail(ReasonProtocolError)
	}
}

// yieldCrossing drops the local initiation in favor of the peer's pair p.
func (s *step) yieldCrossing(p PairID) {
	a := s.newMsg(MsgAccept, p)
	a.Old = s.proposed
	s.reply(a)
	s.proposed, s.agreed, s.state = None, p, StateOpen
	s.switchTx(p)
	s.switchRx(p)
	if s.closeSent {
		s.send(MsgClose, s.lastTx) // the peer may not read the pair any more that the first CLOSE named
	}
}

// onAccept handles ACCEPT.
func (s *step) onAccept(msg Msg) {
	if s.state != StateOpening {
		s.resendReady(msg.Pair)
		return
	}
	if msg.Pair != s.proposed || msg.Old != None && !msg.Old.isRemote() {
		s.fail(ReasonProtocolError)
		return
	}
	if s.conf.ThreeWay {
		s.onAcceptThreeWay(msg)
		return
	}
	p := msg.Pair
	switch {
	case s.lastRemote != None && msg.Old != s.lastRemote:
		s.fail(ReasonProtocolError)
		return
	case msg.Old == None:
		s.switchRx(p)
	case s.lastRemote == None:
		s.lastRemote = msg.Old
		s.lastReply = Msg{}
		s.switchRx(msg.Old)
	}
	s.remote, s.peer = msg.From, msg.Worker
	s.state, s.proposed, s.agreed = StateOpen, None, p
}

// onOpenCrossed handles OPEN_CROSSED: the peer reads the pair of the local OPEN, and its own OPEN wins.
func (s *step) onOpenCrossed(msg Msg) {
	if s.conf.ThreeWay {
		s.fail(ReasonProtocolError) // nothing is sent on the pair of a losing OPEN
		return
	}
	s.remote = msg.From
}

// isNewer reports whether p was created after every pair of its creator that has been read. A reader
// never returns to an older pair, whatever a marker names.
func (m *Machine) isNewer(p PairID) bool { return p != None && p > m.newestRx[p&1] }

// attachFailed handles a message whose pairs cannot be attached.
func (s *step) attachFailed(msg Msg) {
	switch msg.Kind {
	case MsgOpen:
		if s.state == StateIdle || s.conf.ThreeWay && s.state == StateOpening {
			s.remote = msg.From
			s.send(MsgReject, msg.Pair)
			s.fail(ReasonRejected)
			return
		}
		s.fail(ReasonProtocolError)
	case MsgMigrate:
		if s.matches(msg) && s.needsReply(msg) {
			s.sendMigrateNak(msg.Pair)
		}
	default:
		s.fail(ReasonProtocolError)
	}
}

// onMarker handles a marker: the peer continues in p, as named locally.
func (s *step) onMarker(p PairID) {
	switch {
	case p == End:
		s.rxEnded = true
		s.switchRx(None)
	case p == None:
		if !s.peerMaySuspend() {
			s.fail(ReasonProtocolError)
			return
		}
		next := s.rxResume
		s.rxResume = None
		s.switchRx(next)
	case s.isNewer(p) && (p == s.agreed || p == s.tx || p == s.proposed && !s.conf.ThreeWay):
		s.switchRx(p)
	default:
		s.fail(ReasonProtocolError)
	}
}
