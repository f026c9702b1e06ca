package soft

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/stats"
)

// counter is one of a device's counters.
type counter int

const (
	cntTxPackets counter = iota
	cntRxPackets
	cntTxBytes // payload
	cntRxBytes
	cntAcks
	cntNaks
	cntRNRNaks
	cntRetransmits
	cntTimeouts
	cntDuplicates
	cntOutOfSequence
	cntDroppedICRC
	cntDroppedQPN
	cntDroppedPKey
	cntDroppedQKey
	cntDroppedSource
	cntDroppedShort
	cntDroppedOpcode
	cntDroppedInbox
	cntPosts
	cntDoorbells
	cntWQEs
	cntPayloadFetches
	cntCQEs
	cntLocks
	numCounters
)

var counterNames = [numCounters]string{
	"tx_packets", "rx_packets", "tx_bytes", "rx_bytes", "acks", "naks", "rnr_naks", "retransmits", "timeouts",
	"duplicates", "out_of_sequence", "dropped_icrc", "dropped_qpn", "dropped_pkey", "dropped_qkey",
	"dropped_source", "dropped_short", "dropped_opcode", "dropped_inbox",
	"posts", "doorbells", "wqes", "payload_fetches", "cqes", "locks",
}

// counts are counters of one writer at a time: a queue pair's are of its owner.
// Anyone may read them.
type counts [numCounters]uint64

func (c *counts) add(k counter, n uint64) { count(&c[k], n) }

// addAll adds those of another.
func (c *counts) addAll(o *counts) {
	for k := range o {
		count(&c[k], atomic.LoadUint64(&o[k]))
	}
}

// Stats sums the counters up, as they are now.
func (d *device) Stats() *stats.Group {
	d.mu.Lock()
	sum := d.gone
	sum.addAll(&d.counts)
	d.qps.each(func(q *qp) {
		sum.addAll(&q.counts)
		q.rq.addTo(&sum)
	})
	for _, s := range d.srqs {
		s.addTo(&sum)
	}
	for _, c := range d.cqs {
		sum.add(cntLocks, c.locks())
	}
	d.mu.Unlock()
	set := stats.NewSet(counterNames[:])
	for k, n := range sum {
		set.Add(k, n)
	}
	g := new(stats.Group)
	_ = g.Add("device", set) // an empty group takes any prefix
	return g
}
