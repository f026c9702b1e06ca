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

// stepMigrate handles the messages of a migration.
func (s *step) stepMigrate(msg Msg) {
	p := msg.Pair
	switch msg.Kind {
	case MsgMigrate:
		switch {
		case !p.isRemote():
			s.violation()
			return
		case !s.needsReply(msg):
			return
		case !s.rxQuiescent():
			s.sendMigrateNak(p)
			return
		}
		ack := s.newMsg(MsgMigrateAck, p)
		ack.Old, ack.Resume, ack.Closing = s.proposed, s.tx == None, s.txState >= txClosed
		s.lastRemote, s.agreed, s.proposed, s.suspending = p, p, None, None
		s.reply(ack)
		s.switchTxWhenReady(p)
		if msg.Resume {
			s.resumeRx(p)
		}
		s.closeIfReady()

	case MsgMigrateAck:
		s.voidRemoteMigrate(msg.Old)
		if s.proposed != p || p == None {
			s.resendReady(p)
			return
		}
		resumes := msg.Resume && !msg.Closing
		if resumes && !s.isNewer(p) {
			s.violation() // a marker led to this pair already, and a suspended peer writes none
			return
		}
		s.proposed, s.agreed = None, p
		s.connectPair(p)
		s.switchTx(p)
		if resumes {
			s.resumeRx(p)
		}
		s.closeIfReady()

	case MsgMigrateNak:
		s.voidRemoteMigrate(msg.Old)
		if s.proposed == p {
			s.proposed = None
			s.closeIfReady()
		}

	default: // no other message has this role
	}
}

// needsReply reports whether a MIGRATE needs a reply now. A peer that proposes another pair is ready
// in the one before, so needsReply confirms that one.
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
	return m.proposed != None && (msg.Old == m.proposed || m.WinsCrossing(m.peer, m.remote))
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

// voidRemoteMigrate records that the peer's MIGRATE for p is void. It may still arrive.
func (s *step) voidRemoteMigrate(p PairID) {
	if p != None && !p.IsLocal() && p > s.lastRemote {
		s.lastRemote, s.lastReply = p, Msg{}
	}
}
