package machine

import "slices"

// connect begins the connection from this side.
func (s *step) connect() {
	if s.state != Idle {
		return
	}
	s.state = Opening
	s.offer = s.make()
	s.newest = s.offer
	s.write(s.offer)
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
	s.tries = 0
	switch msg.Kind {
	case Hello:
		s.hello(msg)
	case Accept:
		s.accept(msg)
	case Yield:
		s.remote = msg.From
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
	default:
		s.fail(Broken)
	}
}

// ours passes over messages of another connection: late ones of one that is
// over, and those that overtook the first.
func (s *step) ours(msg Msg) bool {
	if msg.To != 0 && msg.To != s.conf.Conn {
		return false
	}
	switch msg.Kind {
	case Hello:
		return s.remote == 0 || msg.From == s.remote
	case Accept, Yield, Refuse:
		return (s.remote == 0 || msg.From == s.remote) && s.state != Idle
	default:
	}
	return s.state == Open && msg.From == s.remote || msg.Kind == Bye && s.state == Opening && msg.From == s.remote
}

// repeat says again what was answered to the peer's last pair, and reports
// whether the message is one that was answered before.
func (s *step) repeat(msg Msg) bool {
	if s.theirs == None || msg.Pair > s.theirs {
		return false
	}
	if msg.Pair == s.theirs && s.answer.Kind != 0 {
		a := s.answer
		a.To = s.remote
		s.do(Action{Kind: Send, Msg: a})
	}
	return true
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
		return // again
	}
	if msg.Pair != s.offer || msg.Old != None && !msg.Old.theirs() {
		s.fail(Broken)
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

// newer reports whether p was made after every pair of its maker that was read: a
// reader never comes back to one, whatever a marker says.
func (m *Machine) newer(p PairID) bool { return p != None && p > m.seen[p&1] }

// unable answers pairs that cannot be attached.
func (s *step) unable(msg Msg) {
	switch msg.Kind {
	case Hello:
		if s.state == Idle {
			s.remote = msg.From
			s.send(Refuse, msg.Pair)
			s.fail(Refused)
			return
		}
		s.fail(Broken)
	case Offer:
		if s.ours(msg) && !s.repeat(msg) && !s.passOver(msg) {
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
	case s.newer(p) && slices.Contains([]PairID{s.newest, s.offer, s.out}, p):
		s.read(p)
	default:
		s.fail(Broken)
	}
}
