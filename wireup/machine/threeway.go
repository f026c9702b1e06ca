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
//     State Opening with that worker, unless one of the two OPENs says that it crosses with
//     none (Met). Otherwise it may go to an Idle one, unless it says so. Otherwise it begins a
//     new connection. An OPEN names the worker that it is for; other workers drop it.
//   - It sends the local QP endpoint info of Pair with each message whose Half returns true.
//   - It retains what arrives in a pair before the action Read names the pair: the marker that
//     leads there may arrive later.
//   - It reports a pair in error as the event Lost, also while a retired pair has
//     unacknowledged requests. Such a pair cannot deliver its marker, and it is unknown what
//     it delivered.
//   - After Fail with Stale, it moves the pending operations to another connection.

// AcceptsPair reports, with ThreeWay, whether the machine accepts the pair of a received OPEN or MIGRATE.
// If so, the transport creates the local queue pair before EventReceive. If that fails, the
// event is EventAttachFailed.
func (m *Machine) AcceptsPair(msg Msg) bool {
	msg = msg.flip()
	if !m.matches(msg) || !msg.Pair.isRemote() || m.lastRemote != None && msg.Pair <= m.lastRemote {
		return false
	}
	switch {
	case msg.Kind == MsgOpen && m.state == StateOpening:
		return !m.wins(msg.Worker, msg.From)
	case msg.Kind == MsgOpen:
		return m.state == StateIdle
	}
	return msg.Kind == MsgMigrate && !m.ignoresMigrate(msg) && m.rxQuiescent()
}

// TxPending returns the pair that the local side sends on once the peer is ready there. None: no
// switch is pending.
func (m *Machine) TxPending() PairID { return m.txPending }

// Confirmed reports whether the peer knows both IDs of the connection. While a worker has a connection
// to the peer that is not Met, the OPEN of a further one must say so. Such an OPEN crosses with
// none.
func (m *Machine) Confirmed() bool { return m.state == StateOpen && m.txPending == None }

// onOpenThreeWay handles OPEN with ThreeWay.
func (s *step) onOpenThreeWay(msg Msg) {
	switch {
	case s.state == StateOpen:
		if s.HalfOpen() && s.txPending == msg.Pair {
			s.resendReply() // the ACCEPT may have been lost
		}
		return
	case s.state == StateOpening && s.wins(msg.Worker, msg.From):
		return // the peer will reply to the local OPEN
	}
	s.remote, s.peer = msg.From, msg.Worker
	s.lastRemote, s.agreed, s.proposed, s.state = msg.Pair, msg.Pair, None, StateOpen
	s.reply(s.newMsg(MsgAccept, msg.Pair))
	s.switchRx(msg.Pair)
	s.switchTxWhenReady(msg.Pair)
}

// onAcceptThreeWay handles ACCEPT with ThreeWay.
func (s *step) onAcceptThreeWay(msg Msg) {
	s.remote, s.peer = msg.From, msg.Worker
	s.state, s.proposed = StateOpen, None
	s.connectPair(msg.Pair)
	s.switchRx(msg.Pair)
	s.switchTx(msg.Pair)
	s.closeIfReady()
}

// switchTxWhenReady switches sending to a remote pair: at once, or with ThreeWay when the peer is ready there.
func (s *step) switchTxWhenReady(p PairID) {
	if s.conf.ThreeWay && !s.closeSent {
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

// onReady handles READY. For a local pair it is the acknowledgment of the local READY.
func (s *step) onReady(p PairID) {
	if p.IsLocal() {
		if p == s.connected {
			s.readyAcked = p
		}
		return
	}
	s.onPeerReady(p)
	if p != None && p == s.lastRemote {
		s.send(MsgReady, p)
	}
}

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
