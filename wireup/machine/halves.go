package machine

// With TwoStep a pair has two halves. Its maker's goes with the hello or offer; the
// other side makes its own ready to receive and to send, and answers with that;
// then the maker's is ready too, and it may send. The other side may send once it
// hears that: Ready, or whatever arrives in the pair. It retransmits a Take until
// then. An Accept it sends acceptTries times, and once more for each further hello:
// anyone can send a hello in the name of another, which would be flooded. So the maker
// retransmits Ready until the other side has answered it with Ready.
//
//	A                           B
//	hello, half of 1 ---------> half of 1, ready; reads 1
//	joins and reads 1, <------- accept, half of 1
//	sends in 1
//	ready --------------------> sends in 1
//	          <---------------- ready
//
// So nothing has been sent in a pair that gives way where both say hello, and it
// goes at once: no yield, no marker.
//
// What the transport does:
//
//   - A message goes to the connection that To names, else Stray answers it. A hello
//     goes to the one whose Remote it comes From; else to one of State Opening with
//     that worker, if neither hello says that it crosses with none (Met); else it
//     may go to an Idle one, unless it says so; else it begins one. It names the worker that it is for, and others drop it.
//   - The sender's half of Pair goes with each message whose Half is true.
//   - What arrives in a pair before Read names it is kept: the marker that leads there
//     may come later.
//   - A pair in error cannot deliver its marker, and what it had delivered is not
//     known: that is Lost, also while a retired one has requests without an ack.
//   - After Fail with Stale, what waits goes by another connection.

// Wants reports, with TwoStep, whether the machine takes the pair that a hello or an
// offer brings. Only then this side's half is made, before Hear (else Unable).
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

// Awaits is the pair that this side sends in as soon as the peer is ready there;
// None: nothing is to be waited for.
func (m *Machine) Awaits() PairID { return m.next }

// Met reports whether the peer has the connection under both names. A hello of a
// worker that has another connection with that peer and has not Met there must say
// so, and crosses with none.
func (m *Machine) Met() bool { return m.state == Open && m.next == None }

// helloHalf is the peer's initiation.
func (s *step) helloHalf(msg Msg) {
	switch {
	case s.state == Open:
		if s.HalfOpen() && s.next == msg.Pair {
			s.again() // the accept may have been lost
		}
		return
	case s.state == Opening && s.smaller(msg.Worker, msg.From):
		return // it will answer this side's
	}
	s.remote, s.peer = msg.From, msg.Worker
	s.theirs, s.newest, s.offer, s.state = msg.Pair, msg.Pair, None, Open
	s.reply(s.message(Accept, msg.Pair))
	s.read(msg.Pair)
	s.enter(msg.Pair)
}

// acceptHalf answers this side's hello.
func (s *step) acceptHalf(msg Msg) {
	s.remote, s.peer = msg.From, msg.Worker
	s.state, s.offer = Open, None
	s.join(msg.Pair)
	s.read(msg.Pair)
	s.write(msg.Pair)
	s.endIfClosing()
}

// enter moves sending to a pair of the peer's: at once, or when both halves of it
// are ready.
func (s *step) enter(p PairID) {
	if s.conf.TwoStep && !s.saidBye {
		s.next = p
		return
	}
	s.write(p)
}

// confirm notes that the peer is ready in p.
func (s *step) confirm(p PairID) {
	if p == None || s.next != p {
		return
	}
	s.next = None
	s.write(p)
	s.endIfClosing()
}

// acceptTries is how often an accept is sent for one hello.
const acceptTries = 3

// readied is the peer's news that both halves of p know each other. Its maker says so
// first.
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

// join takes the other half of a pair of this side's making.
func (s *step) join(p PairID) {
	if !s.conf.TwoStep {
		return
	}
	s.joined = p
	s.do(Action{Kind: Join, Pair: p})
	s.send(Ready, p)
}

// readyAgain answers a peer that has not heard that the pair is ready.
func (s *step) readyAgain(p PairID) {
	if p != None && p == s.joined {
		s.send(Ready, p)
	}
}
