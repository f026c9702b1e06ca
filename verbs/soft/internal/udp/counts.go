package udp

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/stats"
)

// Counter is a counter of rare events of a socket. The engine counts packets.
type Counter int

const (
	TxAgain       Counter = iota // sends refused because the socket buffer was full
	TxTooLong                    // sends longer than the path MTU
	TxRefused                    // sends that reported an ICMP error of an earlier packet
	TxUnreachable                // sends without a route to the peer, or forbidden
	TxUnsegmented                // batches that the outgoing interface could not segment
	TxLost                       // packets lost in sends whose status was OK
	RxShort                      // datagrams shorter than any packet, or segmented into such
	RxTruncated                  // datagrams with truncated data or control data
	RxFamily                     // datagrams of a sender without an IP address
	RxNoBuffer                   // receives postponed because inboxes hold all buffers
	RxErrors                     // receives that returned an error
	RxOverflow                   // datagrams that the kernel dropped because the socket buffer was full
	IDSearched                   // packets whose IPv4 identification had to be searched for
	TxProbes                     // probes of peers' queue pairs
	RxProbes                     // probes of peers that were replied to
	numCounters
)

var counterNames = [numCounters]string{
	"tx_again", "tx_too_long", "tx_refused", "tx_unreachable", "tx_unsegmented", "tx_lost",
	"rx_short", "rx_truncated", "rx_family", "rx_no_buffer", "rx_errors", "rx_overflow", "id_searched", "tx_probes", "rx_probes",
}

// Counts are the counters of a socket. Any goroutine may add to them and read them.
type Counts [numCounters]atomic.Uint64

// CountsOf returns the current sums of the sockets' counters.
func CountsOf(sockets []*Socket) *stats.Set {
	s := stats.NewSet(counterNames[:])
	for _, u := range sockets {
		for k := range u.Counts {
			s.Add(k, u.Counts[k].Load())
		}
	}
	return s
}
