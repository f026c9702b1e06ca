// Package arq makes an unreliable datagram reliable: automatic repeat request
// with cumulative and selective acknowledgements, for messages of one datagram
// each. It is pure: packets and time go in, packets and what to do come out; no
// clock, no input or output, no goroutine. Transport ud drives it.
//
// A flow goes one way, from a Sender to a Receiver, and carries numbered packets:
// messages, and at last an end. Flows of both directions are independent, but a
// packet of one carries the acknowledgement of another, so traffic in both
// directions costs few packets of its own. A Mux holds the flows of one interface
// and decides what the packets between interfaces mean that carry no messages.
//
//	initiator                          acceptor
//	Sender: opening  -- connect -->    Receiver is made
//	Sender: open     <-- accept --
//	                 -- data ----->    in order, once
//	                 <-- ack ------    or with data of a flow back
//	                 -- end ------>
//	Sender: done     <-- ack ------
//	                 -- farewell ->    Receiver is forgotten; without it, after a while
//
// Every message may be lost, doubled, late or out of order. A connect that comes
// again is answered as before; simultaneous ones are two flows. Numbers of flows
// carry a generation, sequence numbers begin at random, and a connect names the
// interface it is meant for: what an earlier life of a peer sent, or was sent,
// fits nowhere. Who gets data of a flow that it does not know says so, and that
// flow fails, unless all but its end was acknowledged.
//
// # What is sent again, and when
//
// A packet counts as lost when one that was transmitted three later has arrived;
// it goes again at once, and the window is halved, once per round trip. When
// nothing is heard for the time-out of RFC 6298 the oldest packet goes again,
// alone, and asks for an answer, which tells all that is missing. That time
// doubles, up to a bound. So a peer that does not answer costs a packet now and
// then, however much is under way; after Config.Silence the flow fails.
//
// Start reading at sender.go and receiver.go.
package arq
