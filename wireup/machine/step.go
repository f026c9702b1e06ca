package machine

import (
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
)

// A step takes one event and leaves the machine consistent. The role's step function changes the
// fields and appends actions in the order in which the transport must execute them. finish then
// derives what follows from the fields alone: pairs that are no longer used are retired, the
// connection is closed when nothing is left to send, read or acknowledge, and the timer is set.
//
// Invariants between steps:
//
//   - tx and rx are the pairs that the transport sends on and reads. Only switchTx and switchRx
//     change them, and each appends the action.
//   - At most one local message waits for its reply in each of proposed, suspending and txState, and
//     the timer runs exactly while one does. tick retransmits it.
//   - The read side never returns to an older pair of the same creator (newestRx).
//   - After StateClosed and StateFailed no field changes. Replies to late messages are repeated.

// step is the context of one call of Step: the machine, the actions, and the pairs in use before.
type step struct {
	*Machine
	acts       []Action
	usedBefore [6]PairID // in use before the event
}

// Step processes one event and appends the resulting actions to acts, in order. Messages go to the
// step function of their role, as the table transitions says. What matches no cell has no effect and
// is counted; a protocol violation fails the connection.
func (m *Machine) Step(now ucs.Time, ev Event, acts []Action) []Action {
	s, before := step{Machine: m, acts: acts, usedBefore: m.used()}, m.state
	if ev.Kind == EventReceive {
		s.receive(ev)
	} else if ev.Kind >= numEventKinds || !events[m.state][ev.Kind] {
		m.ignored++
	} else {
		switch ev.Kind {
		case EventConnect:
			s.connect()
		case EventAttachFailed:
			s.attachFailed(ev.Msg.flip())
		case EventMigrate:
			if m.CanMigrate() {
				s.sendNewMigrate()
			}
		case EventResume:
			if m.tx == None && m.canPropose() {
				s.sendNewMigrate()
			}
		case EventSuspend:
			s.suspend()
		case EventMarker:
			s.onMarker(ev.Pair.Flip())
		case EventClose:
			s.close()
		case EventPeerLost:
			s.fail(ReasonPeerLost)
		case EventTick:
			s.tick(now)
		case EventDataReceived:
			s.onPeerReady(ev.Pair)
		default: // EventReceive, handled above
		}
	}
	if before != StateClosed && before != StateFailed {
		s.finish(now)
	}
	return s.acts
}

// receive processes a message of the peer.
func (s *step) receive(ev Event) {
	msg := ev.Msg.flip()
	role := s.roleOf(msg)
	if role == ignored {
		s.ignored++
		return
	}
	if msg.To != 0 { // the peer knows the local connection ID
		s.tries = 0
	}
	switch role {
	case illegal:
		s.violation()
	case handshake:
		if s.conf.ThreeWay {
			s.stepOpenThreeWay(msg)
		} else {
			s.stepOpen(msg)
		}
	case migration:
		s.stepMigrate(msg)
	case suspension:
		s.stepSuspend(msg, ev.Busy)
	case closing:
		s.stepClose(msg)
	case closed:
		s.stepClosed(msg)
	default: // ignored, returned above
	}
}

// onMarker handles a marker: the peer continues in p, as named locally.
func (s *step) onMarker(p PairID) {
	switch {
	case p == End:
		s.rxEnded = true
		s.switchRx(None)

	case p == None:
		// The local side requested or acknowledged the suspension of this pair, or the peer resumes
		// in another one.
		if s.rx == None || s.suspendSent != s.rx && s.suspended != s.rx && s.rxResume == None {
			s.violation()
			return
		}
		next := s.rxResume
		s.rxResume = None
		s.switchRx(next)

	case s.isNewer(p) && (p == s.agreed || p == s.tx || p == s.proposed && !s.conf.ThreeWay):
		s.switchRx(p)

	default:
		s.violation()
	}
}

// isNewer reports whether p was created after every pair of its creator that has been read. A reader
// never returns to an older pair, whatever a marker names.
func (m *Machine) isNewer(p PairID) bool { return p != None && p > m.newestRx[p&1] }

func (s *step) emit(a Action) { s.acts = append(s.acts, a) }

func (s *step) send(k MsgKind, p PairID) { s.emit(Action{Kind: ActionSend, Msg: s.newMsg(k, p)}) }

// switchTx switches the send direction to pair p.
func (s *step) switchTx(p PairID) {
	if s.txState >= txClosed && p != End {
		return
	}
	s.tx = p
	s.emit(Action{Kind: ActionSwitchTx, Pair: p})
	if p == End {
		s.tx = None
	}
}

// switchRx switches the receive direction to pair p.
func (s *step) switchRx(p PairID) {
	s.rx = p
	if s.rxResume == p {
		s.rxResume = None
	}
	s.newestRx[p&1] = max(s.newestRx[p&1], p)
	s.emit(Action{Kind: ActionSwitchRx, Pair: p})
}

// violation fails the connection: the peer violated the protocol.
func (s *step) violation() { s.fail(ReasonProtocolError) }

// fail fails the connection. With ThreeWay it sends RESET to the peer, unless the connection was
// rejected or the peer's OPEN may be forged.
func (s *step) fail(r Reason) {
	if s.state == StateFailed {
		return
	}
	unconfirmed := s.HalfOpen()
	s.state = StateFailed
	if s.conf.ThreeWay && s.remote != 0 && r != ReasonRejected && !unconfirmed {
		s.send(MsgReset, None) // there is no socket whose closing would notify the peer
	}
	s.emit(Action{Kind: ActionFail, Reason: r})
}

// finish derives what follows from the event. It retires the pairs that are no longer in use,
// closes the connection when it is over, and sets the timer. Actions of Retire follow all others, so
// the transport never releases a pair that a later action names.
func (s *step) finish(now ucs.Time) {
	m := s.Machine
	if m.closeReceived && m.lastRx == None && m.rx == None && m.rxResume == None {
		m.rxEnded = true
	}
	if m.state == StateOpen && m.closeReceived && m.rxEnded && (m.txState == txAcked || m.txState == txClosed && m.conf.Timeout == 0) {
		m.state = StateClosed
		s.emit(Action{Kind: ActionClose})
	}
	if m.state != StateFailed && m.state != StateClosed {
		for i, p := range s.usedBefore {
			if p != None && !m.Uses(p) && !slices.Contains(s.usedBefore[:i], p) {
				s.emit(Action{Kind: ActionRetire, Pair: p})
			}
		}
	}
	s.setTimer(now)
}

// used returns the pairs that this side uses or will use. The agreed pair counts for as long as
// anything is read.
func (m *Machine) used() [6]PairID {
	ps := [...]PairID{m.rx, m.tx, m.proposed, m.rxResume, m.agreed, m.txPending}
	if m.rx == None {
		ps[4] = None
	}
	return ps
}

// Retransmission, with Config.Timeout: one timer serves all local messages without a reply. It runs
// while awaitsReply returns true. A tick retransmits each of them, and the reply that the peer has
// not confirmed. Each retransmission is the same message, so a receiver that has processed it
// repeats its reply and changes nothing.
//
// The peer counts as lost when it has sent nothing that names the local connection for Limit, and
// after at least minTries retransmissions: receive resets tries. Two silences are no loss. READY has
// no reply when the peer has sent data in the pair. CLOSE has none when the peer has closed first
// and has forgotten the connection.

// awaitsReply reports whether a local message is waiting for its reply.
func (m *Machine) awaitsReply() bool {
	return m.state == StateOpening || m.proposed != None || m.suspending != None || m.txPending != None || m.txState == txClosed || m.readyAcked != m.connected
}

// setTimer sets the deadline of the next retransmission. It clears the deadline when no local message
// is waiting for a reply.
func (s *step) setTimer(now ucs.Time) {
	m := s.Machine
	switch {
	case m.conf.Timeout == 0 || m.state == StateClosed || m.state == StateFailed:
		m.deadline = 0
	case !m.awaitsReply():
		m.deadline, m.tries = 0, 0
	case m.deadline == 0 || m.deadline <= now:
		m.deadline = now.Add(m.conf.Timeout)
	}
	if m.tries == 0 {
		m.retrySince = now
	}
}

const (
	// minTries is the least number of retransmissions before the peer counts as lost. It matters
	// where ticks come so late that few fall within Limit.
	minTries = 3
	// pauseThreshold is the delay of a tick from which on the local process is taken to have been
	// stopped. The peer was not silent during that time, so it does not count. A busy machine
	// delays ticks less.
	pauseThreshold = time.Second
)

// tick retransmits the messages that have no reply, or fails the connection after Limit.
func (s *step) tick(now ucs.Time) {
	m := s.Machine
	if m.deadline == 0 || now < m.deadline {
		return
	}
	if late := now.Sub(m.deadline); late > pauseThreshold {
		m.retrySince = m.retrySince.Add(late)
	}
	if m.tries++; m.tries > minTries && now.Sub(m.retrySince) >= m.conf.Limit {
		m.readyAcked = m.connected // READY may stay without a reply: data in the pair confirms it as well
		if !m.awaitsReply() {
			return
		}
		if m.txState >= txClosed && m.closeReceived && m.state == StateOpen && m.proposed == None {
			m.txState = txAcked // the peer has closed and is gone, so it received the local CLOSE
			return
		}
		s.fail(ReasonPeerLost)
		return
	}
	// One message per tick, the first that is outstanding; CLOSE may go with it.
	switch {
	case m.state == StateOpening:
		s.send(MsgOpen, m.proposed)
	case m.proposed != None:
		s.sendMigrate()
	case m.suspending != None:
		s.send(MsgSuspend, m.suspending)
	case m.txPending != None && (!m.HalfOpen() || m.tries < acceptTries):
		s.resendReply()
	case m.readyAcked != m.connected:
		s.send(MsgReady, m.connected)
	}
	if m.txState == txClosed {
		s.send(MsgClose, m.lastTx)
	}
}
