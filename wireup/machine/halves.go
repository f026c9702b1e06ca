package machine

// With TwoStep a pair is two queue pairs, and opening or migrating is a three-way handshake. OPEN
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
//   - It passes a message to the connection that To names, or else sends the reply of Stray.
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

// Wants reports, with TwoStep, whether the machine accepts the pair of a received OPEN or MIGRATE.
// If so, the transport creates the local queue pair before the event Hear. If that fails, the
// event is Unable.
func (m *Machine) Wants(msg Msg) bool {
	msg = msg.flip()
	if !m.ours(msg) || !msg.Pair.theirs() || m.theirs != None && msg.Pair <= m.theirs {
		return false
	}
	switch {
	case msg.Kind == Hello && m.state == Opening:
		return !m.smaller(msg.Worker, msg.From)
	case msg.Kind == Hello:
		return m.state == Idle
	}
	return msg.Kind == Offer && !m.passOver(msg) && m.calm()
}

// Awaits returns the pair that the local side sends on once the peer is ready there. None: no
// switch is pending.
func (m *Machine) Awaits() PairID { return m.next }

// Met reports whether the peer knows both IDs of the connection. While a worker has a connection
// to the peer that is not Met, the OPEN of a further one must say so. Such an OPEN crosses with
// none.
func (m *Machine) Met() bool { return m.state == Open && m.next == None }

// helloHalf handles OPEN with TwoStep.
func (s *step) helloHalf(msg Msg) {
	switch {
	case s.state == Open:
		if s.HalfOpen() && s.next == msg.Pair {
			s.again() // the ACCEPT may have been lost
		}
		return
	case s.state == Opening && s.smaller(msg.Worker, msg.From):
		return // the peer will reply to the local OPEN
	}
	s.remote, s.peer = msg.From, msg.Worker
	s.theirs, s.newest, s.offer, s.state = msg.Pair, msg.Pair, None, Open
	s.reply(s.message(Accept, msg.Pair))
	s.read(msg.Pair)
	s.enter(msg.Pair)
}

// acceptHalf handles ACCEPT with TwoStep.
func (s *step) acceptHalf(msg Msg) {
	s.remote, s.peer = msg.From, msg.Worker
	s.state, s.offer = Open, None
	s.join(msg.Pair)
	s.read(msg.Pair)
	s.write(msg.Pair)
	s.endIfClosing()
}

// enter switches sending to a remote pair: at once, or with TwoStep when the peer is ready there.
func (s *step) enter(p PairID) {
	if s.conf.TwoStep && !s.saidBye {
		s.next = p
		return
	}
	s.write(p)
}

// confirm records that the peer is ready in p.
func (s *step) confirm(p PairID) {
	if p == None || s.next != p {
		return
	}
	s.next = None
	s.write(p)
	s.endIfClosing()
}

// acceptTries is how often ACCEPT is sent for one OPEN.
const acceptTries = 3

// readied handles READY. For a local pair it is the acknowledgment of the local READY.
func (s *step) readied(p PairID) {
	if p.Mine() {
		if p == s.joined {
			s.known = p
		}
		return
	}
	s.confirm(p)
	if p != None && p == s.theirs {
		s.send(Ready, p)
	}
}

// join connects a local pair with the received QP endpoint info.
func (s *step) join(p PairID) {
	if !s.conf.TwoStep {
		return
	}
	s.joined = p
	s.do(Action{Kind: Join, Pair: p})
	s.send(Ready, p)
}

// readyAgain retransmits READY to a peer that has not received it.
func (s *step) readyAgain(p PairID) {
	if p != None && p == s.joined {
		s.send(Ready, p)
	}
}
