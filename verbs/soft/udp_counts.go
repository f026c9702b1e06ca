package soft

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/stats"
)

// udpCounter is one of a port's rare events; packets are counted by the engine.
type udpCounter int

const (
	udpTxAgain       udpCounter = iota // sends that found no room in the socket
	udpTxTooLong                       // sends longer than the path takes
	udpTxRefused                       // sends that were told that an earlier packet found nobody
	udpTxUnreachable                   // sends without a way to the peer, or forbidden
	udpTxUnsegmented                   // trains that the way out could not segment
	udpTxLost                          // packets of sends that failed later than at once
	udpRxShort                         // datagrams shorter than any packet, or cut into such
	udpRxTruncated                     // datagrams that came without their end or control data
	udpRxFamily                        // datagrams of a sender without an IP address
	udpRxNoBuffer                      // receives put off: inboxes hold all buffers
	udpRxErrors                        // receives that answered an error
	udpRxOverflow                      // datagrams that the kernel dropped: the socket was full
	udpIDSearched                      // packets whose identification was searched for
	numUDPCounters
)

var udpCounterNames = [numUDPCounters]string{
	"tx_again", "tx_too_long", "tx_refused", "tx_unreachable", "tx_unsegmented", "tx_lost",
	"rx_short", "rx_truncated", "rx_family", "rx_no_buffer", "rx_errors", "rx_overflow", "id_searched",
}

// udpCounts are the counters of a port. Any goroutine adds and reads.
type udpCounts [numUDPCounters]atomic.Uint64

// set is the counters as they are now.
func (c *udpCounts) set() *stats.Set {
	s := stats.NewSet(udpCounterNames[:])
	for k := range c {
		s.Add(k, c[k].Load())
	}
	return s
}
