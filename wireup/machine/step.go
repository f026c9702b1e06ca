package machine

import (
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
)

// step is one Step under way: the machine, what it was in before, and what is to
// be done.
type step struct {
	*Machine
	acts []Action
	was  [6]PairID // what it held before
}

func (s *step) do(a Action) { s.acts = append(s.acts, a) }

func (s *step) send(k Kind, p PairID) { s.do(Action{Kind: Send, Msg: s.message(k, p)}) }

// write moves this side's sending.
func (s *step) write(p PairID) {
	if s.saidBye && p != End {
		return
	}
	s.out = p
	s.do(Action{Kind: Write, Pair: p})
	if p == End {
		s.out = None
	}
}

// read moves this side's reading.
func (s *step) read(p PairID) {
	s.in = p
	if s.resume == p {
		s.resume = None
	}
	s.seen[p&1] = max(s.seen[p&1], p)
	s.do(Action{Kind: Read, Pair: p})
}

func (s *step) fail(r Reason) {
	if s.state == Failed {
		return
	}
	stranger := s.HalfOpen()
	s.state = Failed
	if s.conf.TwoStep && s.remote != 0 && r != Refused && !stranger {
		s.send(Gone, None) // no socket closes, so that the peer would see it
	}
	s.do(Action{Kind: Fail, Reason: r})
}

// finish retires what was left, ends the connection when it is over, and sets
// the timer.
func (s *step) finish(now ucs.Time) {
	m := s.Machine
	if m.heardBye && m.lastIn == None && m.in == None && m.resume == None {
		m.inEnded = true
	}
	if m.state == Open && m.saidBye && m.heardBye && m.inEnded && (m.acked || m.conf.Timeout == 0) {
		m.state = Done
		s.do(Action{Kind: Ended})
	}
	if m.state != Failed && m.state != Done {
		for i, p := range s.was {
			if p != None && !m.Holds(p) && !slices.Contains(s.was[:i], p) {
				s.do(Action{Kind: Retire, Pair: p})
			}
		}
	}
	s.timer(now)
}

// held lists the pairs that this end uses or will use. One agreed on is still to
// be read as long as anything is.
func (m *Machine) held() [6]PairID {
	ps := [...]PairID{m.in, m.out, m.offer, m.resume, m.newest, m.next}
	if m.in == None {
		ps[4] = None
	}
	return ps
}

// waiting reports whether something of this side wants an answer.
func (m *Machine) waiting() bool {
	return m.state == Opening || m.offer != None || m.nap != None || m.next != None || m.saidBye && !m.acked || m.known != m.joined
}

func (s *step) timer(now ucs.Time) {
	m := s.Machine
	switch {
	case m.conf.Timeout == 0 || m.state == Done || m.state == Failed:
		m.deadline = 0
	case !m.waiting():
		m.deadline, m.tries = 0, 0
	case m.deadline == 0 || m.deadline <= now:
		m.deadline = now.Add(m.conf.Timeout)
	}
	if m.tries == 0 {
		m.since = now
	}
}

const (
	// minTries is how often a message is retransmitted at least before its peer counts
	// as lost. It matters where ticks come so late that few are within Limit.
	minTries = 3
	// stopped is by how much a tick is late when the process was stopped. The peer was
	// not silent meanwhile, so this time does not count. A busy machine delays less.
	stopped = time.Second
)

// tick retransmits what has no answer.
func (s *step) tick(now ucs.Time) {
	m := s.Machine
	if m.deadline == 0 || now < m.deadline {
		return
	}
	if late := now.Sub(m.deadline); late > stopped {
		m.since = m.since.Add(late)
	}
	if m.tries++; m.tries > minTries && now.Sub(m.since) >= m.conf.Limit {
		m.known = m.joined // Ready may go unanswered: what is sent in the pair says the same
		if !m.waiting() {
			return
		}
		if m.saidBye && m.heardBye && m.state == Open && m.offer == None {
			m.acked = true // it has heard this side's end, since it has ended, and is gone
			return
		}
		s.fail(PeerLost)
		return
	}
	switch {
	case m.state == Opening:
		s.send(Hello, m.offer)
	case m.offer != None:
		s.sendOffer()
	case m.nap != None:
		s.send(Nap, m.nap)
	case m.next != None && (!m.HalfOpen() || m.tries < acceptTries):
		s.again()
	case m.known != m.joined:
		s.send(Ready, m.joined)
	}
	if m.saidBye && !m.acked {
		s.send(Bye, m.lastOut)
	}
}
