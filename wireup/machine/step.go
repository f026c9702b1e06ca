package machine

import (
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
)

// step is the context of one call of Step: the machine, the actions, and the pairs in use before.
type step struct {
	*Machine
	acts []Action
	was  [6]PairID // in use before the event
}

func (s *step) do(a Action) { s.acts = append(s.acts, a) }

func (s *step) send(k Kind, p PairID) { s.do(Action{Kind: Send, Msg: s.message(k, p)}) }

// write switches the send direction to pair p.
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

// read switches the receive direction to pair p.
func (s *step) read(p PairID) {
	s.in = p
	if s.resume == p {
		s.resume = None
	}
	s.seen[p&1] = max(s.seen[p&1], p)
	s.do(Action{Kind: Read, Pair: p})
}

// fail fails the connection. With TwoStep it sends RESET to the peer, unless the connection was
// rejected or the peer's OPEN may be forged.
func (s *step) fail(r Reason) {
	if s.state == Failed {
		return
	}
	stranger := s.HalfOpen()
	s.state = Failed
	if s.conf.TwoStep && s.remote != 0 && r != Refused && !stranger {
		s.send(Gone, None) // there is no socket whose closing would notify the peer
	}
	s.do(Action{Kind: Fail, Reason: r})
}

// finish retires the pairs that are no longer in use, closes the connection when it is over, and
// sets the timer.
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

// held returns the pairs that this side uses or will use. The agreed pair counts for as long as
// anything is read.
func (m *Machine) held() [6]PairID {
	ps := [...]PairID{m.in, m.out, m.offer, m.resume, m.newest, m.next}
	if m.in == None {
		ps[4] = None
	}
	return ps
}

// waiting reports whether a local message is waiting for its reply.
func (m *Machine) waiting() bool {
	return m.state == Opening || m.offer != None || m.nap != None || m.next != None || m.saidBye && !m.acked || m.known != m.joined
}

// timer sets the deadline of the next retransmission. It clears the deadline when no local message
// is waiting for a reply.
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
	// minTries is the least number of retransmissions before the peer counts as lost. It matters
	// where ticks come so late that few fall within Limit.
	minTries = 3
	// stopped is the delay of a tick from which on the local process is taken to have been
	// stopped. The peer was not silent during that time, so it does not count. A busy machine
	// delays ticks less.
	stopped = time.Second
)

// tick retransmits the messages that have no reply, or fails the connection after Limit.
func (s *step) tick(now ucs.Time) {
	m := s.Machine
	if m.deadline == 0 || now < m.deadline {
		return
	}
	if late := now.Sub(m.deadline); late > stopped {
		m.since = m.since.Add(late)
	}
	if m.tries++; m.tries > minTries && now.Sub(m.since) >= m.conf.Limit {
		m.known = m.joined // READY may stay without a reply: data in the pair confirms it as well
		if !m.waiting() {
			return
		}
		if m.saidBye && m.heardBye && m.state == Open && m.offer == None {
			m.acked = true // the peer has closed and is gone, so it received the local CLOSE
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
