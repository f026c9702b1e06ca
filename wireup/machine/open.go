package machine

// Crossed OPENs, without TwoStep: both sides have sent OPEN and may have sent data on their own
// pairs. The winner replies OPEN_CROSSED and reads the loser's pair. The loser replies ACCEPT with
// Old set to its own pair, writes a marker into that pair and switches to the winner's pair.
//
// Invariant: the winner reads the loser's pair up to the marker before it reads its own pair. So
// the loser's data keeps its order, whichever of the messages arrives first.

// connect initiates the connection.
func (s *step) connect() {
	if s.state != Idle {
		return
	}
	s.state = Opening
	s.offer = s.make()
	s.newest = s.offer
	if !s.conf.TwoStep {
		s.write(s.offer)
	}
	s.send(Hello, s.offer)
}

// make requests the next local pair.
func (s *step) make() PairID {
	s.made++
	p := number(s.made)
	s.do(Action{Kind: Make, Pair: p})
	return p
}

// hear processes a message of the peer.
func (s *step) hear(ev Event) {
	msg := ev.Msg.flip()
	if !s.ours(msg) {
		return
	}
	if msg.To != 0 { // the peer knows the local connection ID
		s.tries = 0
	}
	switch msg.Kind {
	case Hello:
		s.hello(msg)
	case Accept:
		s.accept(msg)
	case Yield:
		s.yield(msg)
	case Refuse:
		s.fail(Refused)
	case Offer:
		s.offered(msg)
	case Take:
		s.takenUp(msg)
	case Decline:
		s.declined(msg)
	case Nap:
		s.peerNap(msg, ev.Busy)
	case Asleep:
		s.peerAsleep(msg)
	case Stay:
		if s.nap == msg.Pair {
			s.nap = None
		}
	case Bye:
		s.bye(msg)
	case ByeAck:
		s.acked = s.saidBye
	case Ready:
		s.readied(msg.Pair)
	case Gone:
		s.gone()
	default:
		s.fail(Broken)
	}
}

// ours reports whether the message belongs to this connection. It is false for late messages of an
// earlier connection and for those that overtook the first one.
func (m *Machine) ours(msg Msg) bool {
	if msg.To != 0 && msg.To != m.conf.Conn {
		return false
	}
	switch msg.Kind {
	case Hello:
		return m.remote == 0 || msg.From == m.remote
	case Accept, Yield, Refuse:
		return (m.remote == 0 || msg.From == m.remote) && m.state != Idle
	default:
	}
	return m.state == Open && msg.From == m.remote || msg.Kind == Bye && m.state == Opening && msg.From == m.remote
}

// repeat reports whether the message proposes a pair that was replied to before. For the last such
// pair it retransmits the reply.
func (s *step) repeat(msg Msg) bool {
	if s.theirs == None || msg.Pair > s.theirs {
		return false
	}
	if msg.Pair == s.theirs {
		s.again()
	}
	return true
}

// again retransmits the reply to the peer's last proposal. It does not if that reply carries the
// QP endpoint info of a pair that is no longer in use.
func (s *step) again() {
	a := s.answer
	if a.Kind == 0 || s.conf.TwoStep && a.Half() && !s.Holds(a.Pair) {
		return
	}
	a.To = s.remote
	s.do(Action{Kind: Send, Msg: a})
}

// reply sends a reply and stores it for retransmission.
func (s *step) reply(a Msg) {
	s.answer = a
	s.do(Action{Kind: Send, Msg: a})
}

// hello handles OPEN.
func (s *step) hello(msg Msg) {
	if !msg.Pair.theirs() {
		s.fail(Broken)
		return
	}
	if s.conf.TwoStep {
		s.helloHalf(msg)
		return
	}
	s.remote, s.peer = msg.From, msg.Worker
	if s.repeat(msg) {
		return
	}
	switch s.state {
	case Idle:
		s.theirs, s.newest, s.state = msg.Pair, msg.Pair, Open
		s.reply(s.message(Accept, msg.Pair))
		s.read(msg.Pair)
		s.write(msg.Pair)
	case Opening:
		s.theirs = msg.Pair
		if s.smaller(msg.Worker, msg.From) {
			s.reply(s.message(Yield, msg.Pair))
			s.read(msg.Pair)
			return
		}
		s.giveWay(msg.Pair)
	default:
		s.fail(Broken)
	}
}

// giveWay drops the local initiation in favor of the peer's pair p.
func (s *step) giveWay(p PairID) {
	a := s.message(Accept, p)
	a.Old = s.offer
	s.reply(a)
	s.offer, s.newest, s.state = None, p, Open
	s.write(p)
	s.read(p)
	if s.saidBye {
		s.send(Bye, s.lastOut) // the peer may not read the pair any more that the first CLOSE named
	}
}

// accept handles ACCEPT.
func (s *step) accept(msg Msg) {
	if s.state != Opening {
		s.readyAgain(msg.Pair)
		return
	}
	if msg.Pair != s.offer || msg.Old != None && !msg.Old.theirs() {
		s.fail(Broken)
		return
	}
	if s.conf.TwoStep {
		s.acceptHalf(msg)
		return
	}
	p := msg.Pair
	switch {
	case s.theirs != None && msg.Old != s.theirs:
		s.fail(Broken)
		return
	case msg.Old == None:
		s.read(p)
	case s.theirs == None:
		s.theirs = msg.Old
		s.answer = Msg{}
		s.read(msg.Old)
	}
	s.remote, s.peer = msg.From, msg.Worker
	s.state, s.offer, s.newest = Open, None, p
}

// yield handles OPEN_CROSSED: the peer reads the pair of the local OPEN, and its own OPEN wins.
func (s *step) yield(msg Msg) {
	if s.conf.TwoStep {
		s.fail(Broken) // nothing is sent on the pair of a losing OPEN
		return
	}
	s.remote = msg.From
}

// newer reports whether p was created after every pair of its creator that has been read. A reader
// never returns to an older pair, whatever a marker names.
func (m *Machine) newer(p PairID) bool { return p != None && p > m.seen[p&1] }

// unable handles a message whose pairs cannot be attached.
func (s *step) unable(msg Msg) {
	switch msg.Kind {
	case Hello:
		if s.state == Idle || s.conf.TwoStep && s.state == Opening {
			s.remote = msg.From
			s.send(Refuse, msg.Pair)
			s.fail(Refused)
			return
		}
		s.fail(Broken)
	case Offer:
		if s.ours(msg) && s.fresh(msg) {
			s.decline(msg.Pair)
		}
	default:
		s.fail(Broken)
	}
}

// marker handles a marker: the peer continues in p, as named locally.
func (s *step) marker(p PairID) {
	switch {
	case p == End:
		s.inEnded = true
		s.read(None)
	case p == None:
		if !s.mayLeave() {
			s.fail(Broken)
			return
		}
		next := s.resume
		s.resume = None
		s.read(next)
	case s.newer(p) && (p == s.newest || p == s.out || p == s.offer && !s.conf.TwoStep):
		s.read(p)
	default:
		s.fail(Broken)
	}
}
