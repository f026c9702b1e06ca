package machine

// connect begins the connection from this side.
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

// make has a pair made.
func (s *step) make() PairID {
	s.made++
	p := number(s.made)
	s.do(Action{Kind: Make, Pair: p})
	return p
}

// hear takes a message of the peer.
func (s *step) hear(ev Event) {
	msg := ev.Msg.flip()
	if !s.ours(msg) {
		return
	}
	if msg.To != 0 { // it has received this side's name
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

// ours passes over messages of another connection: late ones of one that is
// over, and those that overtook the first.
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

// repeat says again what was answered to the peer's last pair, and reports
// whether the message is one that was answered before.
func (s *step) repeat(msg Msg) bool {
	if s.theirs == None || msg.Pair > s.theirs {
		return false
	}
	if msg.Pair == s.theirs {
		s.again()
	}
	return true
}

// again repeats the answer to the peer's last pair. The half that belongs to it is
// wanted no more where it has been left.
func (s *step) again() {
	a := s.answer
	if a.Kind == 0 || s.conf.TwoStep && a.Half() && !s.Holds(a.Pair) {
		return
	}
	a.To = s.remote
	s.do(Action{Kind: Send, Msg: a})
}

func (s *step) reply(a Msg) {
	s.answer = a
	s.do(Action{Kind: Send, Msg: a})
}

// hello is the peer's initiation.
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

// giveWay leaves this side's initiation for the peer's.
func (s *step) giveWay(p PairID) {
	a := s.message(Accept, p)
	a.Old = s.offer
	s.reply(a)
	s.offer, s.newest, s.state = None, p, Open
	s.write(p)
	s.read(p)
	if s.saidBye {
		s.send(Bye, s.lastOut) // the peer may not look any more where it was said
	}
}

// accept answers this side's hello.
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

// yield is the word of a peer that reads this side's hello and stands by its own.
func (s *step) yield(msg Msg) {
	if s.conf.TwoStep {
		s.fail(Broken) // nothing was sent in a pair that gives way
		return
	}
	s.remote = msg.From
}

// newer reports whether p was made after every pair of its maker that was read: a
// reader never comes back to one, whatever a marker says.
func (m *Machine) newer(p PairID) bool { return p != None && p > m.seen[p&1] }

// unable answers pairs that cannot be attached.
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

// marker is the reader's news that the peer goes on in p, as this side names it.
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
