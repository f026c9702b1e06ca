package machine

// Close: each direction is closed separately. A side writes the end marker into its send pair and
// sends CLOSE, which names that pair. The connection is closed when both sides have sent CLOSE and
// the reader has found the peer's end marker. A suspended peer writes none. With Config.Timeout,
// CLOSE_ACK must have arrived too.
//
// Invariant: a side switches to no pair after its CLOSE. So CLOSE waits while a MIGRATE has no
// reply or a pending send pair is not ready.

// txState is the state of the send direction. It only advances.
type txState uint8

const (
	txOpen    txState = iota
	txClosing         // EventClose waits for the reply to a MIGRATE, or for a pending send pair
	txClosed          // the end marker was written and CLOSE was sent
	txAcked           // the peer has received CLOSE
)

// close closes the send direction. CLOSE waits for the reply to a MIGRATE, so that the peer knows
// which pair holds the end marker. It also waits until a pending send pair is ready.
func (s *step) close() {
	if s.Closing() {
		return
	}
	s.suspending = None
	s.txState = txClosing
	if s.state == StateOpening && !s.conf.ThreeWay || s.proposed == None && s.txPending == None {
		s.sendClose()
	}
}

// closeIfReady sends the CLOSE that waited for a reply.
func (s *step) closeIfReady() {
	if s.txState == txClosing && s.proposed == None && s.txPending == None {
		s.sendClose()
	}
}

// sendClose writes the end marker and sends CLOSE.
func (s *step) sendClose() {
	s.txState = txClosed
	s.lastTx = s.tx
	if s.tx != None {
		s.switchTx(End)
	}
	s.send(MsgClose, s.lastTx)
}

// stepClose handles the messages that end a connection.
func (s *step) stepClose(msg Msg) {
	switch msg.Kind {
	case MsgClose:
		if s.conf.Timeout != 0 {
			s.send(MsgCloseAck, None)
		}
		if !s.closeReceived {
			s.closeReceived, s.lastRx = true, msg.Pair
			s.suspending = None
		}

	case MsgCloseAck:
		if s.txState == txClosed {
			s.txState = txAcked
		}

	case MsgReset:
		switch {
		case s.txState >= txClosed && s.closeReceived:
			s.txState = txAcked // the peer has closed the connection, so it received the local CLOSE
		case s.HalfOpen():
			s.fail(ReasonStale)
		default:
			s.fail(ReasonPeerLost)
		}

	default: // no other message has this role
	}
}

// stepClosed repeats the replies that the peer may have missed, after the connection has closed.
func (s *step) stepClosed(msg Msg) {
	switch {
	case msg.Kind == MsgClose:
		s.send(MsgCloseAck, None)
	case s.lastReply.Kind == MsgAccept && !s.conf.ThreeWay:
		s.emit(Action{Kind: ActionSend, Msg: s.lastReply})
	}
}

// ResetFor returns the reply to a message for a connection that the worker does not have, and whether
// there is a reply. Such a connection has ended, or belonged to an earlier worker. An OPEN
// for no known connection begins a new one instead.
func ResetFor(worker [16]byte, msg Msg) (Msg, bool) {
	switch {
	case msg.To == 0, msg.Kind == MsgOpen, msg.Kind == MsgReject, msg.Kind == MsgCloseAck, msg.Kind == MsgReset:
		return Msg{}, false
	}
	return Msg{Kind: MsgReset, Worker: worker, From: msg.To, To: msg.From}, true
}
