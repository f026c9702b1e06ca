package soft

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/stats"
)

// udpCounter is a counter of rare events of a port. The engine counts packets.
type udpCounter int

const (
	udpTxAgain       udpCounter = iota // sends refused because the socket buffer was full
	udpTxTooLong                       // sends longer than the path MTU
	udpTxRefused                       // sends that reported an ICMP error of an earlier packet
	udpTxUnreachable                   // sends without a route to the peer, or forbidden
	udpTxUnsegmented                   // batches that the outgoing interface could not segment
	udpTxLost                          // packets lost in sends whose status was OK
	udpRxShort                         // datagrams shorter than any packet, or segmented into such
	udpRxTruncated                     // datagrams with truncated data or control data
	udpRxFamily                        // datagrams of a sender without an IP address
	udpRxNoBuffer                      // receives postponed because inboxes hold all buffers
	udpRxErrors                        // receives that returned an error
	udpRxOverflow                      // datagrams that the kernel dropped because the socket buffer was full
	udpIDSearched                      // packets whose IPv4 identification had to be searched for
	numUDPCounters
)

var udpCounterNames = [numUDPCounters]string{
	"tx_again", "tx_too_long", "tx_refused", "tx_unreachable", "tx_unsegmented", "tx_lost",
	"rx_short", "rx_truncated", "rx_family", "rx_no_buffer", "rx_errors", "rx_overflow", "id_searched",
}

// udpCounts are the counters of a port. Any goroutine may add to them and read them.
type udpCounts [numUDPCounters]atomic.Uint64

// set returns the current values.
func (c *udpCounts) set() *stats.Set {
	s := stats.NewSet(udpCounterNames[:])
	for k := range c {
		s.Add(k, c[k].Load())
	}
	return s
}
