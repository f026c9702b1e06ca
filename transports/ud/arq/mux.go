package arq

import "github.com/goucx/goucx/ucs"

// Mux holds the flows of an interface and processes control packets.
//
// Concurrency: one goroutine at a time.
type Mux struct {
	conf *Config
	// Name is the name of the interface. A Connect with another name is refused.
	Name uint64
	// Closed is set when the interface accepts no further flows.
	Closed bool

	out   table[Sender]
	in    table[Receiver]
	known map[origin]Flow // accepted flows
}

// origin identifies a flow among all that peers have ever requested.
type origin struct {
	peer  uint32
	flow  Flow
	first Seq
}

// NewMux creates a Mux without flows. c must not change afterwards.
func NewMux(c *Config, name uint64) *Mux {
	return &Mux{conf: c, Name: name, known: make(map[origin]Flow)}
}

// Open creates a flow that this side sends. first should be random. It returns Flow 0 if
// there are too many flows.
func (m *Mux) Open(first Seq) (Flow, *Sender) {
	s := NewSender(m.conf, first)
	return m.out.add(s), s
}

// Sender returns a sent flow by its local number, or nil.
//
// hot: BenchmarkFlow.
func (m *Mux) Sender(f Flow) *Sender { return m.out.at(f) }

// Receiver returns a received flow by its local number, or nil.
//
// hot: BenchmarkFlow.
func (m *Mux) Receiver(f Flow) *Receiver { return m.in.at(f) }

// Forget removes a sent flow, by its local number.
func (m *Mux) Forget(f Flow) { m.out.remove(f) }

// ForgetReceiver removes a received flow, by its local number.
func (m *Mux) ForgetReceiver(f Flow) {
	if r := m.in.at(f); r != nil {
		delete(m.known, origin{r.Peer, r.To, r.first})
		m.in.remove(f)
	}
}

// ConnectHead returns the header of the Connect for flow f to the interface name.
func (m *Mux) ConnectHead(f Flow, name uint64) Head {
	return Head{A: wordA(Control, Connect, f, m.out.at(f).una), C: name}
}

// Connect processes a Connect from a peer and returns the reply: Accept, Bye if the
// interface closes, or Refuse. Each copy of a Connect gets the Accept of the same flow.
// made is the new flow; nil: none was created.
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

// Answered processes an Accept, Refuse or Bye. It returns the flow that changed, or nil.
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

// Farewell processes a Farewell. It returns the flow that can be removed, or nil. If
// closing is set, the flow need not have ended.
func (m *Mux) Farewell(h *Head, closing bool) *Receiver {
	if r := m.in.at(h.To()); r != nil && (closing || r.ended && r.next == h.Seq()) {
		return r
	}
	return nil
}

// UnknownHead returns the header of the Unknown that replies to h.
func UnknownHead(h *Head) Head { return Head{A: wordA(Control, Unknown, h.To(), h.Seq())} }

// ForgottenHead returns the header of an Unknown that ends r without a packet to reply to.
func ForgottenHead(r *Receiver) Head { return Head{A: wordA(Control, Unknown, r.Own, r.next)} }

// ByeHead returns the header of the Bye for the sender of r.
func ByeHead(r *Receiver) Head {
	return Head{A: wordA(Control, Bye, r.Own, 0), B: uint64(r.To)<<8 | uint64(r.next)<<32}
}

// ByeAnswer returns the header of the Farewell that replies to a Bye.
func ByeAnswer(bye *Head) Head { return Head{A: wordA(Control, Farewell, bye.To(), bye.Ack())} }

// AckHead returns the header of an Ack of r, and clears the pending ACK. sel is the flow's
// Selective; its further words follow the header.
func AckHead(r *Receiver, window uint8, sel *Selective) Head {
	return Head{A: wordA(Control, Ack, 0, Seq(r.twice)), B: r.Acknowledge(window), C: sel[0]}
}

// EachReceiver calls f for each received flow.
func (m *Mux) EachReceiver(f func(*Receiver)) { m.in.each(func(_ Flow, r *Receiver) { f(r) }) }

// Receiving reports whether there are received flows.
func (m *Mux) Receiving() bool { return len(m.known) > 0 }
