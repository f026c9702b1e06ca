package arq

import "github.com/goucx/goucx/ucs"

// Mux holds the flows of an interface and decides about them.
//
// Concurrency: one goroutine at a time.
type Mux struct {
	conf *Config
	// Name is what a Connect must call the interface.
	Name uint64
	// Closed: no flow is accepted any more.
	Closed bool

	out   table[Sender]
	in    table[Receiver]
	known map[origin]Flow // accepted flows
}

// origin tells one flow from all others that peers ever asked for.
type origin struct {
	peer  uint32
	flow  Flow
	first Seq
}

// NewMux makes a Mux without flows. c must not change afterwards.
func NewMux(c *Config, name uint64) *Mux {
	return &Mux{conf: c, Name: name, known: make(map[origin]Flow)}
}

// Open makes a flow; first should be random. Flow 0: there are too many.
func (m *Mux) Open(first Seq) (Flow, *Sender) {
	s := NewSender(m.conf, first)
	return m.out.add(s), s
}

// Sender finds a flow by our number; nil: there is none (any more).
//
// hot: BenchmarkFlow.
func (m *Mux) Sender(f Flow) *Sender { return m.out.at(f) }

// Receiver finds a flow by our number; nil: there is none (any more).
//
// hot: BenchmarkFlow.
func (m *Mux) Receiver(f Flow) *Receiver { return m.in.at(f) }

// Forget ends the use of our number of a flow that we send.
func (m *Mux) Forget(f Flow) { m.out.remove(f) }

// ForgetReceiver ends the use of our number of a flow that we receive.
func (m *Mux) ForgetReceiver(f Flow) {
	if r := m.in.at(f); r != nil {
		delete(m.known, origin{r.Peer, r.To, r.first})
		m.in.remove(f)
	}
}

// ConnectHead is the head of the Connect of our flow f to the interface name.
func (m *Mux) ConnectHead(f Flow, name uint64) Head {
	return Head{A: wordA(Control, Connect, f, m.out.at(f).una), C: name}
}

// Connect replies to a Connect of a peer: with an Accept, the same each time, with a Bye
// where the interface closes, or with a Refuse. made is the flow that is new.
func (m *Mux) Connect(peer uint32, h *Head, window uint8, now ucs.Time) (answer Head, made *Receiver) {
	o := origin{peer, h.To(), h.Seq()}
	about := uint64(h.To())<<8 | uint64(h.Seq())<<32
	refuse := Head{A: wordA(Control, Refuse, 0, 0), B: about}
	f, ok := m.known[o]
	if !ok {
		switch {
		case h.C != m.Name, o.flow == 0:
			return refuse, nil
		case m.Closed:
			return Head{A: wordA(Control, Bye, 0, 0), B: about}, nil
		}
		made = NewReceiver(m.conf, h.Seq(), now)
		made.To, made.Peer = h.To(), peer
		if f = m.in.add(made); f == 0 {
			return refuse, nil
		}
		made.Own = f
		m.known[o] = f
	}
	return Head{
		A: wordA(Control, Accept, 0, Seq(f)),
		B: uint64(window) | about,
	}, made
}

// Answered takes an Accept, Refuse or Bye and gives the flow that it changed; nil:
// none.
func (m *Mux) Answered(h *Head, now ucs.Time) *Sender {
	s := m.out.at(h.AckOf())
	switch {
	case s == nil:
	case h.ID() == Bye && s.state <= Open:
		s.Fail(Closed)
		return s
	case s.state != Opening || h.Ack() != s.una:
	case h.ID() == Accept:
		s.Accepted(Flow(h.Seq()), h.Window(), now)
		return s
	case h.ID() == Refuse:
		s.Fail(Refused)
		return s
	}
	return nil
}

// Farewell takes a Farewell and gives the flow that may be forgotten; nil: none.
// closing: the end of any flow will do.
func (m *Mux) Farewell(h *Head, closing bool) *Receiver {
	if r := m.in.at(h.To()); r != nil && (closing || r.ended && r.next == h.Seq()) {
		return r
	}
	return nil
}

// UnknownHead answers a numbered packet or a Poke of a flow that we do not have.
func UnknownHead(h *Head) Head { return Head{A: wordA(Control, Unknown, h.To(), h.Seq())} }

// ForgottenHead tells the sender of r that we do not have the flow any more.
func ForgottenHead(r *Receiver) Head { return Head{A: wordA(Control, Unknown, r.Own, r.next)} }

// ByeHead tells the sender of r that we close.
func ByeHead(r *Receiver) Head {
	return Head{A: wordA(Control, Bye, r.Own, 0), B: uint64(r.To)<<8 | uint64(r.next)<<32}
}

// ByeAnswer is the Farewell that answers a Bye.
func ByeAnswer(bye *Head) Head { return Head{A: wordA(Control, Farewell, bye.To(), bye.Ack())} }

// AckHead is the head of an Ack: what r owes, with sel behind it.
func AckHead(r *Receiver, window uint8, sel *Selective) Head {
	return Head{A: wordA(Control, Ack, 0, Seq(r.twice)), B: r.Acknowledge(window), C: sel[0]}
}

// EachReceiver calls f for every flow that is received.
func (m *Mux) EachReceiver(f func(*Receiver)) { m.in.each(func(_ Flow, r *Receiver) { f(r) }) }

// Receiving reports whether any flow is received.
func (m *Mux) Receiving() bool { return len(m.known) > 0 }
