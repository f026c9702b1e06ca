package machine

// Migration: the initiator creates a pair and sends MIGRATE. The target replies MIGRATE_ACK and
// switches its send direction, with ThreeWay once the initiator is ready. The initiator switches
// its send direction when MIGRATE_ACK arrives.
//
// Invariant: a receiver switches at the marker, so each direction keeps its order. A suspended
// sender has no pair for a marker, so it sets Resume in its message. The receiver then reads the
// new pair at once. If it has yet to read the marker to None, it reads the new pair after that.
//
// Crossed MIGRATEs: the winner ignores the loser's. The loser accepts the winner's and withdraws
// its own with Old. A side whose reader has not reached the last agreed pair replies MIGRATE_NAK;
// at most one migration is in progress.

// sendNewMigrate sends MIGRATE for a new local pair.
func (s *step) sendNewMigrate() {
	s.proposed = s.createPair()
	s.sendMigrate()
}

// sendMigrate sends, or retransmits, MIGRATE for the proposed pair.
func (s *step) sendMigrate() {
	msg := s.newMsg(MsgMigrate, s.proposed)
	msg.Old, msg.Resume = s.lastRemote, s.tx == None
	s.emit(Action{Kind: ActionSend, Msg: msg})
}

// onMigrate handles MIGRATE.
func (s *step) onMigrate(msg Msg) {
	if !msg.Pair.isRemote() {
		s.fail(ReasonProtocolError)
		return
	}
	if !s.needsReply(msg) {
		return
	}
	if !s.rxQuiescent() {
		s.sendMigrateNak(msg.Pair)
		return
	}
	ack := s.newMsg(MsgMigrateAck, msg.Pair)
	ack.Old = s.proposed
	s.lastRemote, s.proposed, s.suspending = msg.Pair, None, None
	s.agreed = msg.Pair
	ack.Resume, ack.Closing = s.tx == None, s.closeSent
	s.reply(ack)
	s.switchTxWhenReady(msg.Pair)
	if msg.Resume {
		s.resumeRx(msg.Pair)
	}
	s.closeIfReady()
}

// needsReply reports whether a MIGRATE needs a reply now. A peer that proposes another pair is ready in
// the one before, so fresh confirms that one.
func (s *step) needsReply(msg Msg) bool {
	if s.isDuplicate(msg) || s.ignoresMigrate(msg) {
		return false
	}
	s.onPeerReady(s.txPending)
	return true
}

// ignoresMigrate reports whether a MIGRATE gets no reply because it crosses a local one that the peer
// has replied to already, or that wins.
func (m *Machine) ignoresMigrate(msg Msg) bool {
	return m.proposed != None && (msg.Old == m.proposed || m.wins(m.peer, m.remote))
}

// sendMigrateNak sends MIGRATE_NAK for p. It also withdraws the local MIGRATE, which the peer may have
// ignored in favor of its own.
func (s *step) sendMigrateNak(p PairID) {
	s.lastRemote, s.suspending = p, None
	a := s.newMsg(MsgMigrateNak, p)
	a.Old, s.proposed = s.proposed, None
	s.reply(a)
	s.closeIfReady()
}

// resumeRx resumes reading in p, where a suspended peer sends again.
func (s *step) resumeRx(p PairID) {
	if s.rx == None {
		s.switchRx(p)
		return
	}
	s.rxResume = p
}

// onMigrateAck handles MIGRATE_ACK.
func (s *step) onMigrateAck(msg Msg) {
	s.voidRemoteMigrate(msg.Old)
	if s.proposed != msg.Pair || msg.Pair == None {
		s.resendReady(msg.Pair)
		return
	}
	resumes := msg.Resume && !msg.Closing
	if resumes && !s.isNewer(msg.Pair) {
		s.fail(ReasonProtocolError) // a marker led to this pair already, and a suspended peer writes none
		return
	}
	s.proposed, s.agreed = None, msg.Pair
	s.connectPair(msg.Pair)
	s.switchTx(msg.Pair)
	if resumes {
		s.resumeRx(msg.Pair)
	}
	s.closeIfReady()
}

// onMigrateNak handles MIGRATE_NAK.
func (s *step) onMigrateNak(msg Msg) {
	s.voidRemoteMigrate(msg.Old)
	if s.proposed == msg.Pair && s.state == StateOpen {
		s.proposed = None
		s.closeIfReady()
	}
}

// voidRemoteMigrate records that the peer's MIGRATE for p is void. It may still arrive.
func (s *step) voidRemoteMigrate(p PairID) {
	if p != None && !p.IsLocal() && p > s.lastRemote {
		s.lastRemote, s.lastReply = p, Msg{}
	}
}
