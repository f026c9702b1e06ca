// Package arq makes unreliable datagrams reliable. It implements automatic repeat request
// with cumulative and selective acknowledgements, for messages of one datagram each. It
// is pure: its inputs are packets and the time, its outputs are packets and actions. It
// has no clock, no I/O and no goroutine. Package ud drives it.
//
// A flow is unidirectional, from a Sender to a Receiver. It carries numbered packets: Data,
// and one End as its last. Flows in opposite directions are independent. A numbered packet
// of one flow can piggyback the ACK of another, so bidirectional traffic needs few ACK
// packets. A Mux holds the flows of one interface and processes control packets.
//
//	initiator                          acceptor
//	Sender: Opening  -- Connect -->    Receiver is created
//	Sender: Open     <-- Accept --
//	                 -- Data ----->    delivered in order, once
//	                 <-- Ack ------    or piggybacked on a packet of another flow
//	                 -- End ------>
//	Sender: Done     <-- Ack ------
//	                 -- CloseComplete -> Receiver is removed; if this is lost, by a time-out
//
// Every packet may be lost, duplicated, delayed or reordered. A retransmitted Connect gets
// the same Accept. Simultaneous Connects create two flows.
//
// Packets to or from an earlier incarnation of a peer match no flow. Flow numbers contain a
// generation, the first sequence number is random, and a Connect carries the name of its
// target. The receiver of a packet of a flow that does not exist replies with Reset. The
// flow fails then, unless everything but its End was acknowledged.
//
// # Retransmission
//
// Invariant: a packet's slot belongs to the flow until the packet is acknowledged, so every
// unacknowledged packet can be retransmitted at any time.
//
// A packet counts as lost once a packet has arrived that was transmitted sufficiently
// later: three transmissions, or about half a round trip (RFC 8985). It is retransmitted
// at once. Both limits grow when the receiver reports that retransmitted packets arrived
// twice, that is, when packets were reordered and not lost.
//
// A loss reduces the window by an eighth. It halves the window if the smoothed round-trip
// time exceeds one and a half times the shortest. Further losses have no effect on it
// until all packets that were sent before the reduction are acknowledged. If all retransmitted
// packets arrived twice, the window returns to its previous size.
//
// If no ACK arrives within the retransmission time-out of RFC 6298, only the oldest packet
// is retransmitted, with a request for an ACK. The ACK reports all missing packets. The
// second time-out in a row reduces the window to eight packets. From then on the time-out
// doubles, up to Config.MaxRTO. So a peer that does not respond costs one packet per time-out, regardless
// of the number of unacknowledged packets. After Config.PeerTimeout the flow fails.
//
// Start reading at sender.go and receiver.go.
package arq
