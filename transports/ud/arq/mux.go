package arq

import "github.com/goucx/goucx/ucs"

// Mux holds the flows of an interface and processes control packets.
//
// Concurrency: one goroutine at a time.
type Mux struct {
	conf *Config
	// Name is the name of the interface. A Connect with another name is rejected.
	Name uint64
	// Closed is set when the interface accepts no further flows.
	Closed bool

	senders   table[Sender]
	receivers table[Receiver]
	accepted  map[origin]Flow // accepted flows
}

// origin identifies a flow among all that peers have ever requested.
type origin struct {
	peer  uint32
	flow  Flow
	first Seq
}

// NewMux creates a Mux without flows. c must not change afterwards.
func NewMux(c *Config, name uint64) *Mux {
	return &Mux{conf: c, Name: name, accepted: make(map[origin]Flow)}
}

// Open creates a flow that this side sends. first should be random. It returns Flow 0 if
// there are too many flows.
func (m *Mux) Open(first Seq) (Flow, *Sender) {
	s := NewSender(m.conf, first)
	return m.senders.add(s), s
}

// Sender returns a sent flow by its local number, or nil.
//
//hot:bench BenchmarkFlow
func (m *Mux) Sender(f Flow) *Sender { return m.senders.at(f) }

// Receiver returns a received flow by its local number, or nil.
//
//hot:bench BenchmarkFlow
func (m *Mux) Receiver(f Flow) *Receiver { return m.receivers.at(f) }

// RemoveSender removes a sent flow, by its local number.
func (m *Mux) RemoveSender(f Flow) { m.senders.remove(f) }

// RemoveReceiver removes a received flow, by its local number.
func (m *Mux) RemoveReceiver(f Flow) {
	if r := m.receivers.at(f); r != nil {
		delete(m.accepted, origin{r.Peer, r.Remote, r.first})
		m.receivers.remove(f)
	}
}

// ConnectHeader returns the header of the Connect for flow f to the interface name. Word B is the
// user's.
func (m *Mux) ConnectHeader(f Flow, name uint64) Header {
	return Header{A: wordA(Control, Connect, f, m.senders.at(f).una), C: name}
}

// HandleConnect processes a Connect from a peer and returns the reply: Accept, Close if the
// interface closes, or Reject. Each copy of a Connect gets the Accept of the same flow.
// made is the new flow; nil: none was created. Word C of an Accept or a Reject is the user's.
func (m *Mux) HandleConnect(peer uint32, h *Header, window uint8, now ucs.Time) (reply Header, made *Receiver) {
	o := origin{peer, h.To(), h.Seq()}
	refuse := RejectHeader(h)
	f, ok := m.accepted[o]
	if !ok {
		switch {
		case h.C != m.Name, o.flow == 0:
			return refuse, nil
		case m.Closed:
			return Header{A: wordA(Control, Close, 0, 0), B: refuse.B}, nil
		}
		made = NewReceiver(m.conf, h.Seq(), now)
		made.Remote, made.Peer = h.To(), peer
		if f = m.receivers.add(made); f == 0 {
			return refuse, nil
		}
		made.Local = f
		m.accepted[o] = f
	}
	return Header{
		A: wordA(Control, Accept, 0, Seq(f)),
		B: uint64(window) | refuse.B,
	}, made
}

// RejectHeader returns the header of the Reject that replies to the Connect h.
func RejectHeader(h *Header) Header {
	return Header{A: wordA(Control, Reject, 0, 0), B: uint64(h.To())<<8 | uint64(h.Seq())<<32}
}

// HandleReply processes an Accept, Reject or Close. It returns the flow that changed, or nil.
func (m *Mux) HandleReply(h *Header, now ucs.Time) *Sender {
	s := m.senders.at(h.AckOf())
	switch {
	case s == nil:
	case h.ID() == Close && s.state <= Open:
		s.Fail(Closed)
		return s
	case s.state != Opening || h.Ack() != s.una:
	case h.ID() == Accept:
		s.HandleAccept(Flow(h.Seq()), h.Window(), now)
		return s
	case h.ID() == Reject:
		s.Fail(Rejected)
		return s
	}
	return nil
}

// HandleCloseComplete processes a CloseComplete. It returns the flow that can be removed, or nil. If
// closing is set, the flow need not have ended.
func (m *Mux) HandleCloseComplete(h *Header, closing bool) *Receiver {
	if r := m.receivers.at(h.To()); r != nil && (closing || r.ended && r.next == h.Seq()) {
		return r
	}
	return nil
}

// ResetHeader returns the header of the Reset that replies to h.
func ResetHeader(h *Header) Header { return Header{A: wordA(Control, Reset, h.To(), h.Seq())} }

// ResetFlowHeader returns the header of a Reset that ends r without a packet to reply to.
func ResetFlowHeader(r *Receiver) Header { return Header{A: wordA(Control, Reset, r.Local, r.next)} }

// CloseHeader returns the header of the Close for the sender of r.
func CloseHeader(r *Receiver) Header {
	return Header{A: wordA(Control, Close, r.Local, 0), B: uint64(r.Remote)<<8 | uint64(r.next)<<32}
}

// CloseReply returns the header of the CloseComplete that replies to a Close.
func CloseReply(h *Header) Header {
	return Header{A: wordA(Control, CloseComplete, h.To(), h.Ack())}
}

// AckHeader returns the header of an Ack of r, and clears the pending ACK. sel is the flow's
// Selective; its further words follow the header.
func AckHeader(r *Receiver, window uint8, sel *Selective) Header {
	return Header{A: wordA(Control, Ack, 0, Seq(r.duplicates)), B: r.AckWord(window), C: sel[0]}
}

// EachReceiver calls f for each received flow.
func (m *Mux) EachReceiver(f func(*Receiver)) {
	for i := range m.receivers.items {
		if r := m.receivers.items[i].value; r != nil {
			f(r)
		}
	}
}

// HasReceivers reports whether there are received flows.
func (m *Mux) HasReceivers() bool { return len(m.accepted) > 0 }
