package machine

// With ThreeWay a pair is two queue pairs, and opening or migrating is a three-way handshake. OPEN
// and MIGRATE carry the initiator's QP endpoint info. The target connects its own queue pair and
// replies with that one's info. The initiator then connects its queue pair and may send. The
// target may send once it knows that: it receives READY, or any message in the pair.
//
// Retransmission: the target retransmits MIGRATE_ACK until then. It sends ACCEPT acceptTries
// times, and once more for each further OPEN: anyone can forge the sender of an OPEN, and the
// forged sender would be flooded. So the initiator retransmits READY until the target has replied
// with READY.
//
//	A                                   B
//	OPEN, QP info of pair 1 --------->  connects its QP; reads 1
//	connects its QP, reads 1,  <------  ACCEPT, QP info of pair 1
//	sends in 1
//	READY --------------------------->  sends in 1
//	                           <------  READY
//
// Invariant: no side sends on a pair before both of its queue pairs are connected. So when two
// OPENs cross, nothing was sent on the losing pair. It is dropped at once, without OPEN_CROSSED
// and without a marker.
//
// The transport does the following:
//
//   - It passes a message to the connection that To names, or else sends the reply of ResetFor.
//     An OPEN goes to the connection whose Remote it comes From. Otherwise it goes to one of
//     StateOpening with that worker, unless one of the two OPENs says that it crosses with
//     none (Confirmed). Otherwise it may go to one of StateIdle, unless it says so. Otherwise it begins a
//     new connection. An OPEN names the worker that it is for; other workers drop it.
//   - It sends the local QP endpoint info of Pair with each message whose CarriesQPInfo returns true.
//   - It retains what arrives in a pair before ActionSwitchRx names the pair: the marker that
//     leads there may arrive later.
//   - It reports a pair in error as EventPeerLost, also while a retired pair has
//     unacknowledged requests. Such a pair cannot deliver its marker, and it is unknown what
//     it delivered.
//   - After ActionFail with ReasonStale, it moves the pending operations to another connection.

// AcceptsPair reports, with ThreeWay, whether the machine accepts the pair of a received OPEN or
// MIGRATE. If so, the transport creates the local queue pair before EventReceive. If that fails, the
// event is EventAttachFailed.
func (m *Machine) AcceptsPair(msg Msg) bool {
	msg = msg.flip()
	if !msg.Pair.isRemote() || m.lastRemote != None && msg.Pair <= m.lastRemote {
		return false
	}
	switch role := m.roleOf(msg); {
	case role == migration:
		return msg.Kind == MsgMigrate && !m.ignoresMigrate(msg) && m.rxQuiescent()
	case role != handshake || msg.Kind != MsgOpen:
		return false
	}
	return m.state == StateIdle || m.state == StateOpening && !m.WinsCrossing(msg.Worker, msg.From)
}

// TxPending returns the pair that the local side sends on once the peer is ready there. None: no
// switch is pending.
func (m *Machine) TxPending() PairID { return m.txPending }

// Confirmed reports whether the peer knows both IDs of the connection. While a worker has a
// connection to the peer that is not Confirmed, the OPEN of a further one must say so. Such an OPEN
// crosses with none.
func (m *Machine) Confirmed() bool { return m.state == StateOpen && m.txPending == None }

// stepOpenThreeWay handles the messages of the open handshake with ThreeWay.
func (s *step) stepOpenThreeWay(msg Msg) {
	p := msg.Pair
	switch msg.Kind {
	case MsgOpen:
		switch {
		case !p.isRemote():
			s.violation()

		case s.state == StateOpen:
			if s.HalfOpen() && s.txPending == p {
				s.resendReply() // the ACCEPT may have been lost
			}

		case s.state == StateOpening && s.WinsCrossing(msg.Worker, msg.From):
			return // the peer will reply to the local OPEN

		default:
			s.remote, s.peer = msg.From, msg.Worker
			s.lastRemote, s.agreed, s.proposed, s.state = p, p, None, StateOpen
			s.reply(s.newMsg(MsgAccept, p))
			s.switchRx(p)
			s.switchTxWhenReady(p)
		}

	case MsgAccept:
		switch {
		case s.state != StateOpening:
			s.resendReady(p)

		case p != s.proposed || msg.Old != None && !msg.Old.isRemote():
			s.violation()

		default:
			s.remote, s.peer = msg.From, msg.Worker
			s.state, s.proposed = StateOpen, None
			s.connectPair(p)
			s.switchRx(p)
			s.switchTx(p)
			s.closeIfReady()
		}

	case MsgOpenCrossed:
		s.violation() // nothing is sent on the pair of a losing OPEN

	case MsgReject:
		s.fail(ReasonRejected)

	case MsgReady:
		if p.IsLocal() { // the acknowledgment of the local READY
			if p == s.connected {
				s.readyAcked = p
			}
			return
		}
		s.onPeerReady(p)
		if p != None && p == s.lastRemote {
			s.send(MsgReady, p)
		}

	default: // no other message has this role
	}
}

// switchTxWhenReady switches sending to a remote pair: at once, or with ThreeWay when the peer is
// ready there.
func (s *step) switchTxWhenReady(p PairID) {
	if s.conf.ThreeWay && s.txState < txClosed {
		s.txPending = p
		return
	}
	s.switchTx(p)
}

// onPeerReady records that the peer is ready in p.
func (s *step) onPeerReady(p PairID) {
	if p == None || s.txPending != p {
		return
	}
	s.txPending = None
	s.switchTx(p)
	s.closeIfReady()
}

// acceptTries is how often ACCEPT is sent for one OPEN.
const acceptTries = 3

// connectPair connects a local pair with the received QP endpoint info.
func (s *step) connectPair(p PairID) {
	if !s.conf.ThreeWay {
		return
	}
	s.connected = p
	s.emit(Action{Kind: ActionConnect, Pair: p})
	s.send(MsgReady, p)
}

// resendReady retransmits READY to a peer that has not received it.
func (s *step) resendReady(p PairID) {
	if p != None && p == s.connected {
		s.send(MsgReady, p)
	}
}
